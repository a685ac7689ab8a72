"""Quantised directories are read as exactly the weights that they stand for.

First each stored matrix by itself, bit by bit; then the whole engine, in float32, against transformers
in float64 with the dequantised weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from halogen_kernels.reference import pack_linear
from support import greedy_case, malformed_quantised, tiny_hf
from support.engine_driver import generate_greedy, load_engine
from support.engine_logits import largest_error
from support.file_bytes import FileBytes
from support.greedy_case import NEW_TOKENS
from support.malformed import write_folder
from support.tiny_hf import TinyDir
from support.tiny_layouts import read_state
from support.tiny_quantised import WIDE, awq, fp8_blocks, fp8_tensors, gptq

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.quantisation import encode
from halogend.checkpoint.safetensors import read_shards
from halogend.engine.codecs import decode_rows
from halogend.engine.files import open_files
from halogend.engine.tensors import Packing, WeightSource

TOLERANCE = 2e-5  # of the largest logit: what float32 arithmetic costs, and no more
PROMPTS = 10
_MOE = {**WIDE, "head_dim": 32, "moe_intermediate_size": 128, "intermediate_size": 128}
_ODD = {**WIDE, "intermediate_size": 200, "head_dim": 24}  # blocks of 128 are cut at the edges

BASES: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("llama-llama3", WIDE),
    "qwen2": ("qwen2-window", WIDE),
    "phi3": ("phi3-window", WIDE),
    "mixtral": ("mixtral", WIDE),
    "moe": ("qwen3_moe", _MOE),
    "odd": ("qwen3", _ODD),
}
# By name: the model quantised, and how.
FORMATS: dict[str, tuple[str, Callable[[TinyDir, Path], TinyDir]]] = {
    "awq-128": ("llama", awq),
    "awq-64-bias": ("qwen2", partial(awq, group_size=64)),
    "awq-32-fused": ("phi3", partial(awq, group_size=32)),
    "awq-no-zero": ("llama", partial(awq, zero_point=False)),
    "awq-experts": ("mixtral", partial(awq, skip=["self_attn"])),
    "gptq-128": ("llama", gptq),
    "gptq-64-asym": ("qwen2", partial(gptq, group_size=64, sym=False)),
    "gptq-32-act-order": ("phi3", partial(gptq, group_size=32, desc_act=True)),
    "gptq-row": ("llama", partial(gptq, group_size=-1, sym=False)),
    "gptq-v2": ("llama", partial(gptq, sym=False, v2=True)),
    "gptq-v2-act-order": ("moe", partial(gptq, group_size=32, desc_act=True, v2=True)),
    "fp8-blocks": ("llama", fp8_blocks),
    "fp8-blocks-odd": ("odd", partial(fp8_blocks, skip=["down_proj"])),
    "fp8-blocks-experts": ("moe", fp8_blocks),
    "fp8-tensor": ("qwen2", fp8_tensors),
    "fp8-tensor-static": ("llama", partial(fp8_tensors, static=True)),
}
# One of each method runs to the last token by default; the others are as many again, and slow.
GREEDY = ("awq-64-bias", "gptq-32-act-order", "fp8-blocks-experts")

Make = Callable[[str], TinyDir]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Each format's directory, made once."""
    root = tmp_path_factory.mktemp("quantised")
    made: dict[str, TinyDir] = {}

    def by_name(name: str) -> TinyDir:
        if name not in made:
            base, quantise = FORMATS[name]
            if base not in made:
                variant, sizes = BASES[base]
                made[base] = tiny_hf.make(variant, root / base, seed=2, **sizes)
            made[name] = quantise(made[base], root / name)
        return made[name]

    return by_name


@pytest.mark.parametrize("name", FORMATS)
def test_each_matrix_is_bit_equal(make: Make, name: str) -> None:
    tiny = make(name)
    shards = read_shards(tiny.path)
    config = tiny_hf.read_config(tiny.path)
    encoded = encode(shards.tensors, config["quantization_config"], tiny.path)
    plain = read_state(tiny.source)
    assert encoded.keys() >= plain.keys()
    assert all(weight.endswith(".bias") for weight in encoded.keys() - plain.keys())
    with FileBytes(shards.files) as source:
        for weight, expected in plain.items():
            out = torch.full((encoded[weight].rows, encoded[weight].columns), float("nan"))
            decode_rows(encoded[weight], 0, len(out), out, source)
            assert torch.equal(out.view(expected.shape), expected), weight


@pytest.mark.parametrize("name", FORMATS)
def test_logits(make: Make, name: str) -> None:
    assert largest_error(make(name)) < TOLERANCE


@pytest.mark.parametrize(
    "name", [name if name in GREEDY else pytest.param(name, marks=pytest.mark.slow) for name in FORMATS]
)
def test_greedy_tokens(make: Make, name: str) -> None:
    tiny = make(name)
    case = greedy_case.make_case(tiny, PROMPTS)
    assert generate_greedy(load_engine(tiny.path), case.prompts, NEW_TOKENS).tokens == case.expected


def test_another_format_is_caught(make: Make) -> None:
    """The bound sees what quantisation does: one model's formats are far apart."""
    ours, other = make("gptq-128"), make("awq-128")
    mixed = TinyDir(other.path, ours.name, ours.source)
    assert largest_error(mixed) > 1000 * TOLERANCE


def test_columns_of_no_group_are_refused_by_file_and_tensor(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(malformed_quantised.gptq(), tmp_path / "m"))
    with open_files(checkpoint, lambda: None) as files, pytest.raises(CheckpointError) as caught:
        WeightSource(checkpoint, files, Packing(pack_linear, torch.float32), lambda _: None).matrix("blk.0.attn_q")
    wanted = f"{tmp_path}/m/model.safetensors: tensor 'model.layers.0.self_attn.q_proj.g_idx': holds the group "
    assert caught.value.message.startswith(wanted)
