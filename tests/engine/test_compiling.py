"""Before a model on a device is read its kernels must be there: what is missing refuses the start by its code."""

import dataclasses
import os
import subprocess
import sys

import pytest
import torch
from support.engine_driver import engine_spec
from support.tiny_models import tiny_llama

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.engine.compiling import shapes_of
from halogend.engine.refusal import StartRefusedError
from halogend.engine.worker import start_failure

WITHOUT_A_DEVICE = """
import sys
from halogen_kernels.triton import rehearsal, shapes, targets
from halogend.engine.compiling import ready_kernels
from halogend.engine.progress import Progress
from halogend.engine.refusal import StartRefusedError
from halogend.wire.specs import EngineSpec
import msgspec
spec = msgspec.json.decode(sys.argv[1], type=EngineSpec)
with rehearsal.pretending(targets.named("h100")):
    try:
        ready_kernels(spec, shapes.FEW, Progress())
    except StartRefusedError as error:
        print(error.code, error.message)
"""


def spec(**given):
    return engine_spec("m.gguf", backend="triton", device="cuda:0", **given)


@pytest.fixture
def geometry(tmp_path):
    return open_checkpoint(str(tiny_llama(tmp_path / "tiny.gguf").path), "auto").geometry


def test_a_model_leads_to_the_shapes_of_its_geometry(geometry):
    geometry = dataclasses.replace(geometry, heads=12, kv_heads=4, head_dim=96, qk_norm=True, attention_softcap=30.0)
    shapes = shapes_of(geometry, torch.bfloat16, ["int4", "int8"], "fp8")
    assert (shapes.head_dims, shapes.dtypes) == ((96,), (torch.bfloat16,))
    assert (shapes.kv_formats, shapes.weight_formats) == (("fp8",), ("int4", "int8", "plain"))
    assert (shapes.softcaps, shapes.norms, shapes.experts) == (
        (True,),
        (True,),
        (False,),
    )
    assert shapes_of(geometry, torch.float16, ["plain"], "fp16").kv_formats == ("same",)


def test_a_refused_start_reaches_the_daemon_with_its_code():
    failure = start_failure(spec(), StartRefusedError("HRT-1102", "kernel not found for op: rotate"))
    assert (failure.code, failure.message) == ("HRT-1102", "m.gguf: kernel not found for op: rotate")


@pytest.mark.slow
def test_a_missing_kernel_that_may_not_be_compiled_refuses_the_start(tmp_path):
    import msgspec

    wanted = spec(may_compile=False, kernel_cache=str(tmp_path / "kernels"))
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_DEVICE, msgspec.json.encode(wanted).decode()],
        check=False, capture_output=True, text=True, env=environ, timeout=110,
    )  # fmt: skip
    assert done.stdout.startswith("HRT-1102 kernel not found for op: "), done.stderr
    assert f"`halogend warmup-kernel --target sm_90 --cache-dir {tmp_path / 'kernels'}`" in done.stdout
