"""A converted checkpoint holds the source's values, in halogend's own order, and what else serving it needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from support import tiny_hf
from support.conversions import decoded, in_v2_terms
from support.tiny_gguf import from_hf
from support.tiny_hf import TinyDir
from support.tiny_layouts import in_dtype
from support.tiny_models import tiny_gemma3, tiny_llama
from support.tiny_quantised import WIDE, awq, fp8_blocks, gptq

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.verify import verify
from halogend.engine.convert import convert

VARIANTS = ("llama-bias", "qwen2", "qwen3", "qwen3_moe-mixed", "mixtral", "gemma3_text", "phi3-longrope")
ROUNDED = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
QUANTISED = {"int8": 1 / 127, "fp8": 1 / 16, "int4": 3 / 15}
"""By policy: how far a value may be from the source's, of the largest of its row."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyDir]:
    root = tmp_path_factory.mktemp("tiny")
    made: dict[str, TinyDir] = {}

    def by_name(name: str) -> TinyDir:
        if name not in made:
            sizes = WIDE if name == "llama" else {}
            made[name] = tiny_hf.make(name, root / name, seed=1, **sizes)
        return made[name]

    return by_name


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_are_the_sources_in_the_order_of_turning(tiny, tmp_path: Path, name: str) -> None:
    source = tiny(name).path
    convert(source, tmp_path / "m.hgn2", quant_policy="fp32")
    expected, found = in_v2_terms(source), decoded(tmp_path / "m.hgn2")
    assert found.keys() == expected.keys()
    for weight, values in expected.items():
        assert torch.equal(found[weight], values), weight
    converted = open_checkpoint(tmp_path / "m.hgn2")
    assert converted.geometry == open_checkpoint(source).geometry
    assert converted.adjacent_pairs
    assert converted.norm_offset == 0
    assert not verify(open_v2(tmp_path / "m.hgn2"))


@pytest.mark.parametrize("policy", ["bf16", "fp16"])
def test_numbers_are_rounded_once_but_for_vectors_routers_and_the_table(tiny, tmp_path: Path, policy: str) -> None:
    source = tiny("qwen3_moe-mixed").path
    convert(source, tmp_path / "m.hgn2", quant_policy=policy)
    expected, found = in_v2_terms(source), decoded(tmp_path / "m.hgn2")
    for weight, values in expected.items():
        is_exact = values.shape[1] == 1 or "ffn_gate_inp" in weight or (policy, weight) == ("bf16", "token_embd")
        assert torch.equal(found[weight], values if is_exact else values.to(ROUNDED[policy]).float()), weight


@pytest.mark.parametrize("policy", QUANTISED)
def test_quantised_values_are_near_and_the_output_has_its_own_entry(tiny, tmp_path: Path, policy: str) -> None:
    source = tiny("llama").path
    assert open_checkpoint(source).geometry.tied_embeddings
    convert(source, tmp_path / "m.hgn2", quant_policy=policy)
    expected, found = in_v2_terms(source), decoded(tmp_path / "m.hgn2")
    assert found.keys() - expected.keys() == {"output"}
    for weight, values in (expected | {"output": expected["token_embd"]}).items():
        error = (found[weight] - values).abs() / values.abs().amax(1, keepdim=True).clamp(min=1e-9)
        bound = QUANTISED[policy] if values.shape[1] > 1 and weight != "token_embd" else 2**-8
        bound = 1 / 127 if weight == "output" else bound
        assert error.max() <= bound, weight
        if values.shape[1] > 1:
            assert error.max() > 0, weight
    layouts = {entry.name: entry.layout for entry in open_v2(tmp_path / "m.hgn2").entries.values()}
    assert layouts["output"] == "r8.v1"


def test_a_gguf_source_of_an_interleaved_order_keeps_it(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "m.gguf", seed=5, long_rope=True).path
    convert(source, tmp_path / "m.hgn2", quant_policy="fp32")
    expected, found = in_v2_terms(source), decoded(tmp_path / "m.hgn2")
    assert "rope_freqs" in found
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[weight], values) for weight, values in expected.items())


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_blocks_of_four_bits_come_back_bit_for_bit(tmp_path: Path, kind: str) -> None:
    source = tiny_llama(tmp_path / "m.gguf", seed=6, kind=kind).path
    done = convert(source, tmp_path / "m.hgn2")
    expected, found = in_v2_terms(source), decoded(tmp_path / "m.hgn2")
    layers = [weight for weight, values in expected.items() if weight.startswith("blk.") and values.shape[1] > 1]
    assert (done.policy, done.kept) == ("int4", len(layers))
    for weight in layers:
        assert torch.equal(found[weight], expected[weight]), weight


def test_blocks_with_products_of_scales_keep_their_codes(tmp_path: Path) -> None:
    """Q4_K: a value is off by no more than its scale and minimum are when they are rounded to float16."""
    sizes = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64, "num_hidden_layers": 1}
    wide = tiny_hf.make("qwen3", tmp_path / "wide", **sizes)
    source = from_hf(wide, tmp_path / "m.gguf", "Q8_0")
    _as_q4_k(source, tmp_path / "k.gguf")
    done = convert(tmp_path / "k.gguf", tmp_path / "m.hgn2")
    expected, found = in_v2_terms(tmp_path / "k.gguf"), decoded(tmp_path / "m.hgn2")
    assert done.kept == 7
    for weight, values in expected.items():
        if weight.startswith("blk.") and values.shape[1] > 1:
            groups = values.view(len(values), -1, 32)
            error = (found[weight].view(groups.shape) - groups).abs()
            assert (error <= groups.abs().amax(2, keepdim=True) * 2**-9 + 1e-7).all(), weight


def _as_q4_k(source: Path, path: Path) -> None:
    """The same model with random blocks of Q4_K as its matrices of layers."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), *field.types[:2])
    random = np.random.default_rng(3)
    for tensor in reader.tensors:
        rows, columns = int(tensor.shape[-1]), int(tensor.shape[0])
        if tensor.name.startswith("blk.") and len(tensor.shape) > 1:
            blocks = random.integers(0, 256, (rows, columns // 256, 144), dtype=np.uint8)
            blocks[:, :, :4].view(np.float16)[:] = random.uniform(1e-4, 2e-3, (rows, columns // 256, 2))
            raw = blocks.reshape(rows, -1)
            writer.add_tensor(tensor.name, raw, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


KEPT: dict[str, tuple[Callable[[TinyDir, Path], TinyDir], bool]] = {
    "awq": (partial(awq, group_size=64), True),
    "awq-signed": (partial(awq, zero_point=False), True),
    "gptq": (partial(gptq, sym=False), True),
    "gptq-row": (partial(gptq, group_size=-1), True),
    "gptq-act-order": (partial(gptq, group_size=32, desc_act=True), False),
}


@pytest.mark.parametrize("name", KEPT)
def test_c4_a_quantised_source_keeps_its_bits_and_its_codes(tiny, tmp_path: Path, name: str) -> None:
    """C4: nobody says how it is quantised, and it is not several times its size."""
    quantise, is_kept = KEPT[name]
    source = quantise(tiny("llama"), tmp_path / "source")
    done = convert(source.path, tmp_path / "m.hgn2")
    layers = [each for each in open_checkpoint(source.path).weights if each.split(".")[-1] in _MATRICES]
    assert (done.policy, done.kept) == ("int4", len(layers) if is_kept else 0)
    stored = open_v2(tmp_path / "m.hgn2").entries
    before = sum(open_checkpoint(source.path).weights[each].nbytes for each in layers)
    assert sum(stored[each].nbytes for each in layers) < 1.3 * before
    expected, found = in_v2_terms(source.path), decoded(tmp_path / "m.hgn2")
    for weight in layers:
        largest = expected[weight].abs().amax(1, keepdim=True)
        error = ((found[weight] - expected[weight]).abs() / largest).max()
        assert error < (2**-9 if is_kept else 3 / 15), weight


_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def test_c4_eight_bit_floats_stay_eight_bit_floats(tiny, tmp_path: Path) -> None:
    source = fp8_blocks(tiny("llama"), tmp_path / "source")
    assert convert(source.path, tmp_path / "m.hgn2").policy == "fp8"


def test_c4_a_policy_that_is_stated_is_followed(tiny, tmp_path: Path) -> None:
    source = awq(tiny("llama"), tmp_path / "source")
    assert convert(source.path, tmp_path / "m.hgn2", quant_policy="fp16").policy == "fp16"
    assert convert(tiny("llama").path, tmp_path / "n.hgn2").policy == "fp16"


def test_c4_a_scheme_that_contradicts_the_tensors_is_an_error(tiny, tmp_path: Path) -> None:
    source = awq(tiny("llama"), tmp_path / "source")
    config = source.path / "config.json"
    config.write_text(config.read_text().replace('"awq"', '"gptq"'))
    with pytest.raises(CheckpointError) as caught:
        convert(source.path, tmp_path / "m.hgn2")
    assert caught.value.code == errors.TENSOR_MISMATCH
    assert list(tmp_path.glob("*.hgn2")) + list(tmp_path.glob(".*")) == []


def test_tiles_of_another_height_and_parts_hold_the_same(tiny, tmp_path: Path) -> None:
    source = tiny("llama").path
    convert(source, tmp_path / "a.hgn2", quant_policy="int4")
    convert(source, tmp_path / "b.hgn2", quant_policy="int4", block_size=48, part_bytes=64 << 10)
    assert len(open_v2(tmp_path / "b.hgn2").files) > 2
    ours, theirs = decoded(tmp_path / "a.hgn2"), decoded(tmp_path / "b.hgn2")
    assert all(torch.equal(ours[weight], theirs[weight]) for weight in ours)


def test_it_does_not_matter_how_many_threads_convert(tiny, tmp_path: Path) -> None:
    source = tiny("phi3-longrope").path
    for threads in (1, 3):
        convert(source, tmp_path / f"{threads}.hgn2", quant_policy="int8", threads=threads)
    assert (tmp_path / "1.hgn2").read_bytes() == (tmp_path / "3.hgn2").read_bytes()


def test_text_and_origin_go_along(tiny, tmp_path: Path) -> None:
    source = tiny("gemma3_text").path
    convert(source, tmp_path / "m.hgn2")
    file = open_v2(tmp_path / "m.hgn2")
    assert {"tokenizer.json", "tokenizer_config.json", "config.json"} <= set(file.text_names)
    assert all(file.text(name) == (source / name).read_bytes() for name in file.text_names)
    files = {each.name: each for each in file.metadata.source.files}
    assert files["config.json"].bytes == (source / "config.json").stat().st_size
    assert {path.name for path in source.glob("*.safetensors")} < files.keys()


def test_the_keys_of_a_gguf_file_are_one_of_their_own(tmp_path: Path) -> None:
    source = tiny_gemma3(tmp_path / "m.gguf", seed=2).path
    convert(source, tmp_path / "m.hgn2")
    (tmp_path / "keys.gguf").write_bytes(open_v2(tmp_path / "m.hgn2").text("gguf"))
    from halogend.checkpoint.gguf import read_header

    ours, theirs = read_header(tmp_path / "keys.gguf"), read_header(source)
    assert not ours.tensors
    assert ours.metadata.keys() == theirs.metadata.keys()
    assert ours.strings("tokenizer.ggml.tokens") == theirs.strings("tokenizer.ggml.tokens")


def test_half_precision_sources_keep_their_table(tiny, tmp_path: Path) -> None:
    source = in_dtype(tiny("llama"), tmp_path / "source", torch.bfloat16).path
    for policy in ("bf16", "fp32", "int8"):
        convert(source, tmp_path / f"{policy}.hgn2", quant_policy=policy)
        assert open_v2(tmp_path / f"{policy}.hgn2").entries["token_embd"].dtype.label == "BF16"


REFUSED = [
    ({"format": "v3"}, "format is 'v3'"),
    ({"block_size": 0}, "block_size is 0"),
    ({"quant_policy": "int3"}, "quant_policy is 'int3'; there are fp32, bf16, fp16, fp8, int8, int4"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_arguments_that_mean_nothing(tiny, tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert(tiny("llama").path, tmp_path / "m.hgn2", **arguments)


def test_columns_of_no_whole_groups_are_refused_for_int4(tmp_path: Path) -> None:
    source = tiny_hf.make("qwen3", tmp_path / "m", intermediate_size=100).path
    with pytest.raises(CheckpointError, match=r"'blk\.0\.ffn_down' has 100 columns, and int4 takes multiples of 32"):
        convert(source, tmp_path / "m.hgn2", quant_policy="int4")
    assert convert(source, tmp_path / "m.hgn2", quant_policy="int8").policy == "int8"


def test_values_beyond_float16_are_refused_by_name(tiny, tmp_path: Path) -> None:
    from support.tiny_layouts import read_state, write_dir

    state = read_state(tiny("llama").path)
    state["model.layers.1.mlp.up_proj.weight"][3, 5] = 70_000.0
    write_dir(tmp_path / "source", state, tiny("llama").config, tiny("llama").path)
    with pytest.raises(CheckpointError, match=r"weight 'blk\.1\.ffn_up' cannot be converted: .*; bf16 has the range"):
        convert(tmp_path / "source", tmp_path / "m.hgn2", quant_policy="fp16")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_v2_checkpoint_and_the_source_itself_are_refused(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "m.gguf").path
    with pytest.raises(CheckpointError, match="is the source itself"):
        convert(source, source)
    convert(source, tmp_path / "m.hgn2")
    with pytest.raises(CheckpointError, match="is a v2 checkpoint already"):
        convert(tmp_path / "m.hgn2", tmp_path / "n.hgn2")
    with pytest.raises(CheckpointError, match="is a directory"):
        convert(source, tmp_path)
