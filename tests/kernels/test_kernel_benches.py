"""The benchmarks run and print; what they print of time is not judged."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "kernels" / "bench"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_quantised_linear(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    bench = runpy.run_path(str(BENCHES / "quantised_linear.py"))
    bench["main"](["--rows", "64", "--columns", "32", "--threads", "1", "--dtype", dtype])
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert title == f"[64, 32] {dtype}, 1 threads, ms a product"
    assert "plain (" in heads
    assert "int4 (reference.int4)" in heads
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
