"""Which weights of a v2 checkpoint stay where they lie: by precision, by share, and what goes together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tiny_models import tiny_llama
from support.v2_models import as_v2

from halogend.checkpoint.adoption import adopt, looked_up
from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.sizes import mapped_bytes, packed_names, read_bytes, stored_bytes


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    folder = tmp_path_factory.mktemp("v2")
    source = tiny_llama(folder / "a.gguf").path
    made = {kind: as_v2(source, folder / f"{kind}.hgn2", kind) for kind in ("int8", "fp8", "int4", "bf16")}
    return {"gguf": open_checkpoint(source), **{kind: open_checkpoint(path) for kind, path in made.items()}}


@pytest.mark.parametrize(
    ("kind", "precision", "layers"),
    [
        ("int8", "int8", True),
        ("fp8", "fp8", True),
        ("int4", "int4", True),
        ("int8", "int4", False),
        ("int8", "fp8", False),
        ("int4", "bf16", False),
    ],
)
def test_a_precision_takes_the_layout_that_its_kernels_take(
    checkpoints: dict[str, Checkpoint], kind: str, precision: str, layers: bool
) -> None:
    checkpoint = checkpoints[kind]
    adoption = adopt(checkpoint, precision, 1.0)
    assert adoption.copied == frozenset()
    matrices = {name for name, weight in checkpoint.weights.items() if name.startswith("blk.") and weight.columns > 1}
    assert {name for name in adoption.mapped if name.startswith("blk.")} == (matrices if layers else set())
    assert "token_embd" in adoption.mapped, "a table of numbers is read as it is in every precision"
    assert ("output" in adoption.mapped) == (precision in ("int8", "fp8", "int4")), "which keeps eight bits"
    assert set(packed_names(checkpoint, adoption)) == (matrices | {"output"}) - adoption.mapped


def test_no_other_format_is_used_where_it_lies(checkpoints: dict[str, Checkpoint]) -> None:
    adoption = adopt(checkpoints["gguf"], "int8", 1.0)
    assert adoption.mapped | adoption.copied == frozenset()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_no_more_than_the_share_is_mapped_and_what_goes_together_goes_together(
    checkpoints: dict[str, Checkpoint], share: float
) -> None:
    checkpoint = checkpoints["int4"]
    adoption = adopt(checkpoint, "int4", share)
    sizes = {name: checkpoint.weights[name].nbytes for name in adoption.mapped | adoption.copied}
    mapped, most = sum(sizes[name] for name in adoption.mapped), share * read_bytes(checkpoint)
    assert mapped <= most
    assert adoption.mapped | adoption.copied == adopt(checkpoint, "int4", 1.0).mapped
    for layer in range(checkpoint.geometry.layers):
        together = {f"blk.{layer}.attn_{part}" for part in "qkv"}
        assert together <= adoption.mapped or together <= adoption.copied
    unused = min(most, sum(sizes.values())) - mapped
    assert all(sizes[name] > unused for name in adoption.copied if ".attn_" not in name), "none could have stayed"
    stored = sum(stored_bytes(checkpoint.weights[name]) for name in adoption.mapped)
    assert sum(mapped_bytes(checkpoint, adoption).values()) == stored


def test_a_mapped_table_is_looked_up_in_unless_it_is_multiplied_with(checkpoints: dict[str, Checkpoint]) -> None:
    checkpoint = checkpoints["int8"]
    assert looked_up(checkpoint, adopt(checkpoint, "int8", 1.0)) == {"token_embd"}
    assert looked_up(checkpoint, adopt(checkpoint, "int8", 0.0)) == frozenset(), "it is copied"
    assert looked_up(checkpoints["gguf"], adopt(checkpoints["gguf"], "int8", 1.0)) == frozenset()
    tied = replace(checkpoint, weights={name: each for name, each in checkpoint.weights.items() if name != "output"})
    assert looked_up(tied, adopt(tied, "int8", 1.0)) == frozenset()
