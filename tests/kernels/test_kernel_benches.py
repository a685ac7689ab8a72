"""The benchmarks run and print; what they print of time is not judged."""

from __future__ import annotations

import importlib
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHES = Path(__file__).parents[2] / "kernels" / "bench"
# Those that share a frame, for kernels of devices.
FRAMED = [
    "activation",
    "embedding",
    "experts",
    "gated_linear",
    "paged_decode",
    "paged_prefill",
    "quantised_linear",
    "rms_norm",
    "rotate",
    "sample",
    "write_kv",
]


@pytest.fixture(autouse=True)
def _benches_import_their_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHES)


@pytest.mark.parametrize("name", FRAMED)
def test_a_framed_bench(name: str, device: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench, out = runpy.run_path(str(BENCHES / f"{name}.py")), tmp_path / "results.json"
    bench["main"](["--device", device.type, "--small", "--json", str(out)])
    title, heads, *lines = capsys.readouterr().out.splitlines()
    told: dict[str, Any] = json.loads(out.read_text())
    assert f"{told['ceilings']['dtype']}: copies" in title
    assert heads.split() == ["operator", "shape", "us", "GB/s", "of", "copy", "TFLOP/s", "of", "product"]
    assert [line.split()[0] for line in lines] == [result["op"] for result in told["results"]]
    assert all(result["seconds"] > 0 and result["variants"] for result in told["results"])
    assert {variant.split(":")[0] for result in told["results"] for variant in result["variants"]} == {name}


def test_the_readme_lists_every_framed_bench_and_every_module_of_kernels() -> None:
    text = (BENCHES.parent / "README.md").read_text()
    modules = [
        path for path in (BENCHES.parent / "halogen_kernels/triton").glob("*.py") if "triton.jit" in path.read_text()
    ]
    assert [name for name in FRAMED if f"`{name}`" not in text] == []
    assert [path.name for path in modules if "def rehearse" in path.read_text() and path.name not in text] == []


def test_a_bar_is_held_against_a_copy_or_against_another_way(device: torch.device) -> None:
    frame = importlib.import_module("frame")
    options = frame.Options(device, torch.bfloat16, small=True)
    ceilings = frame.Ceilings("a device", torch.bfloat16, 1e9, 1e12)
    x = torch.randn(64, 64, device=device)

    def once():  # type: ignore[no-untyped-def]
        return lambda: x.mul(2)

    def often():  # type: ignore[no-untyped-def]
        return lambda: [x.mul(2) for _ in range(200)]

    for beside, faster in (("copy", None), ("often", True), ("once", False)):
        ways = {"once": once, "often": often} if faster else {"often": often, "once": once}
        case = frame.Case("double", "64 x 64", 32768, 4096, ways, frame.Bar(beside, 1.0))
        result = frame.run_case(case, options, ceilings)
        if faster is None:
            assert result.reached == result.copy_share == pytest.approx(32768 / result.seconds / 1e9)
        else:
            assert (result.reached > 1) == faster
            assert f"1 beside {beside}: {'reached' if faster else 'MISSED'}" in frame.line(result)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_weight_formats(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    bench = runpy.run_path(str(BENCHES / "weight_formats.py"))
    bench["main"](["--rows", "64", "--columns", "32", "--threads", "1", "--dtype", dtype])
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert title == f"[64, 32] {dtype}, 1 threads, ms a product"
    assert "plain (" in heads
    assert "int4 (reference.int4)" in heads
    assert "f8.v1 stored" in heads
    assert [line.split()[0] for line in lines] == ["1", "4", "16", "256"]


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_paged_attention(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    bench = runpy.run_path(str(BENCHES / "paged_attention.py"))
    sizes = ["--contexts", "100,300", "--batches", "1,2", "--cache-mib", "1", "--threads", "1"]
    bench["main"](["--model", model, "--cpu-time", *sizes])
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith(f"{model}, bfloat16, 1 threads")
    assert heads.endswith("row")
    assert [line.split()[:2] for line in lines] == [["1", "100"], ["1", "300"], ["2", "100"], ["2", "300"]]
    assert all("(1.00)" in line for line in lines)
