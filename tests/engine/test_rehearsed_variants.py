"""What an engine launches is what was compiled for it ahead: no variant of a kernel comes up while it serves.

In the interpreter, whose block sizes are its own; flags, formats and dtypes are those of a device.
"""

from pathlib import Path

import pytest
import torch
from halogen_kernels.triton.launching import launched
from halogen_kernels.triton.rehearsal import launches
from halogen_kernels.triton.targets import INTERPRETER
from support.engine_driver import engine_spec, load_engine
from support.served import Served
from support.tiny_models import tiny_gemma3, tiny_llama
from support.v2_models import as_v2

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.engine import loading

PROMPTS = ([5], [*range(7, 24)], [*range(40, 63)])


def llama(folder: Path, precision: str) -> Path:
    made = tiny_llama(folder / "model.gguf", seed=3, layers=1, head_dim=32, heads=6, kv_heads=2).path
    return made if precision == "bf16" else as_v2(made, folder / "model.hgn2", precision)


def gemma3(folder: Path, precision: str) -> Path:
    return tiny_gemma3(folder / "model.gguf", seed=4, window=16, layers=6).path


@pytest.mark.parametrize(
    ("make", "precision", "kv"),
    [
        (llama, "bf16", "bf16"),
        (llama, "int4", "fp8"),
        pytest.param(llama, "fp8", "bf16", marks=pytest.mark.slow),
        pytest.param(gemma3, "bf16", "int8", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_launched_that_was_not_rehearsed(tmp_path, make, precision, kv):
    path = make(tmp_path, precision)
    given = {"precision": precision, "compute_dtype": "bf16", "kv_cache_dtype": kv, "backend": "triton"}
    geometry = open_checkpoint(str(path), "auto").geometry
    shapes = loading.shapes_for(engine_spec(path, **given), geometry, torch.bfloat16)
    rehearsed = {(launch.variant.op, launch.variant.name) for launch in launches(INTERPRETER, shapes)}
    with launched() as variants:
        served = Served(load_engine(path, pool_bytes=1 << 20, **given), prefill_chunk_tokens=20)
        for number, prompt in enumerate(PROMPTS):
            served.add(number, prompt, 3)
        served.run()
    assert {(variant.op, variant.name) for variant in variants} - rehearsed == set()
