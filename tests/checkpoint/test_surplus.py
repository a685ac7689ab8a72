"""What a checkpoint may hold beside the model: zeros that quantisers write as biases, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import malformed_hf as hf
from support.malformed import write_folder
from support.malformed_files import Folder
from support.malformed_gguf import ROWS
from support.malformed_quantised import HIDDEN, awq, fp8, gptq, zero_biases

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.safetensors import read_shards

_Q = "model.layers.0.self_attn.q_proj"


def refusal(folder: Folder, path: Path) -> CheckpointError:
    write_folder(folder, path)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    return caught.value


@pytest.mark.parametrize("quantised", [gptq, awq])
def test_biases_of_zeros_beside_every_quantised_matrix_are_none(quantised: Callable[..., Folder], tmp_path: Path):
    bare = open_checkpoint(write_folder(quantised(), tmp_path / "bare"))
    with_biases = open_checkpoint(write_folder(quantised(tensors=zero_biases()), tmp_path / "biases"))
    assert with_biases.weights.keys() == bare.weights.keys()
    assert with_biases.geometry == bare.geometry
    assert len(zero_biases()) == 7 * bare.geometry.layers


@pytest.mark.parametrize("quantised", [gptq, awq])
def test_one_that_is_not_all_zeros_is_refused_by_name(quantised: Callable[..., Folder], tmp_path: Path):
    biases = {**zero_biases(), f"{_Q}.bias": ("F16", (HIDDEN,))}
    error = refusal(quantised(tensors=biases), tmp_path)
    assert error.code == errors.TENSOR_MISMATCH
    assert error.message == (
        f"{tmp_path / hf.SINGLE}: tensor '{_Q}.bias' is not all zeros, and has no place in the model that "
        "config.json describes (llama, layers: 2)"
    )


@pytest.mark.parametrize("last", [0, 31])
def test_every_byte_of_it_is_looked_at(last: int, tmp_path: Path):
    folder = write_folder(gptq(tensors=zero_biases()), tmp_path)
    bias = next(each for each in _stored(folder) if each[0] == f"{_Q}.bias")
    path = folder / hf.SINGLE
    data = bytearray(path.read_bytes())
    data[bias[1] + last] = 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"q_proj\.bias' is not all zeros"):
        open_checkpoint(folder)


def _stored(folder: Path) -> list[tuple[str, int]]:
    return [(tensor.name, tensor.offset) for tensor in read_shards(folder).tensors.values()]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (lambda: gptq(tensors={f"{_Q}.bias": ("F16 zeros", (HIDDEN + 8,))}), f"{_Q}.bias"),
        (lambda: gptq(tensors={"lm_head.bias": ("F16 zeros", (ROWS,))}), "lm_head.bias"),
        (lambda: gptq(tensors={"model.layers.7.mlp.up_proj.bias": ("F16 zeros", (8,))}), "model.layers.7.mlp"),
        (lambda: fp8(tensors={f"{_Q}.bias": ("F16 zeros", (HIDDEN,))}), f"{_Q}.bias"),
        (lambda: hf.sharded(hf.tensors() | {f"{_Q}.bias": ("F16 zeros", (16,))}), f"{_Q}.bias"),
    ],
    ids=["longer than its matrix", "of a plain matrix", "of none", "of fp8", "in a plain model"],
)
def test_zeros_elsewhere_have_no_place(folder: Callable[[], Folder], name: str, tmp_path: Path):
    error = refusal(folder(), tmp_path)
    assert error.code == errors.TENSOR_MISMATCH
    assert f"tensor '{name}" in error.message
    assert "has no place in the model that config.json describes" in error.message


@pytest.mark.parametrize("part", ["q_scale", "k_scale", "v_scale", "kv_scale", "prob_scale"])
def test_scales_of_an_eight_bit_cache_are_passed_over(part: str, tmp_path: Path):
    extra = {f"model.layers.{layer}.self_attn.{part}": ("F32", ()) for layer in range(2)}
    found = open_checkpoint(write_folder(fp8(tensors=extra), tmp_path))
    assert not any(part in name for name in found.weights)
