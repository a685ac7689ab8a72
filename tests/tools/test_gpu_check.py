"""The script for a machine with a GPU: what it says without one, what it counts as passed, and that its parts run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpu_check
import pytest
import torch

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.kernels.test_triton_a" name="test_one"/>
<testcase classname="tests.kernels.test_triton_a" name="test_two[cuda]"><failure>no</failure></testcase>
<testcase classname="tests.kernels.test_triton_b" name="test_three"><error>no</error></testcase>
<testcase classname="tests.kernels.test_triton_b" name="test_four"><skipped/></testcase>
</testsuite></testsuites>"""


def result(reached: float | None, bar: dict[str, Any] | None) -> dict[str, Any]:
    figures = {"seconds": 1e-5, "copy_share": 0.5, "product_share": 0.1, "others": {"torch": 2e-5}}
    return {"op": "paged_decode", "shape": "32 x 4096", "reached": reached, "bar": bar, **figures}


def test_a_bar_that_is_not_reached_is_a_problem_that_names_it() -> None:
    bar = {"beside": "copy", "least": 0.8}
    told = {"results": [result(0.79, bar), result(0.8, bar), result(None, None)]}
    assert gpu_check.missed_bars(told) == ["paged_decode 32 x 4096: 0.79 of 0.8 beside copy"]
    shown = gpu_check.shown(gpu_check.Part("bench paged_decode", 3.0, ("too slow",), told))
    assert shown.splitlines()[:2] == ["bench paged_decode: 3 s, NOT passed", "    too slow"]
    assert "torch x2.00  bar 0.8 beside copy" in shown


def test_outcomes_of_tests_are_counted_and_failures_named(tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text(JUNIT)
    counts, failed = gpu_check.junit(tmp_path / "tests.xml")
    assert counts == {"passed": 1, "failed": 2, "skipped": 1}
    assert failed == ["tests.kernels.test_triton_a.test_two[cuda]", "tests.kernels.test_triton_b.test_three"]
    assert gpu_check.junit(tmp_path / "none.xml") == ({}, [])


def test_a_part_that_ends_badly_or_late_says_so(tmp_path: Path) -> None:
    run = gpu_check.Run(tmp_path, gpu_check.time.monotonic() + 100, interpreter=True)
    assert run.child("good", ["true"], 10) == []
    assert run.child("bad", ["sh", "-c", "echo first; echo the reason; exit 3"], 10) == ["exit status 3: the reason"]
    assert run.child("late", ["sleep", "60"], 0.05) == ["stopped after 0 s"]
    late = gpu_check.Run(tmp_path, gpu_check.time.monotonic() - 1, interpreter=True)
    assert late.child("none", ["true"], 10) == ["not run: no time was left"]


def test_a_file_whose_tests_cannot_run_is_named(tmp_path: Path) -> None:
    run = gpu_check.Run(tmp_path, gpu_check.time.monotonic() + 100, interpreter=True)
    (tmp_path / "pytest.ini").write_text(gpu_check.PYTEST_INI)
    counts, problems = gpu_check.file_tests(run, tmp_path / "test_none.py", 60)
    assert sum(counts.values()) == 0
    assert len(problems) == 1
    assert problems[0].startswith("test_none.py: exit status 4: ")


def test_all_framed_benches_are_run_and_those_with_a_bar_are_known(tmp_path: Path) -> None:
    names = gpu_check.benches(gpu_check.Run(tmp_path, 0.0, interpreter=False))
    assert {"rms_norm", "rotate", "activation", "embedding", "sample"} <= set(names)
    with_bar = {name for name in names if "bar=" in source(name) or "Bar(" in source(name)}
    assert with_bar == set(gpu_check.FIRST)


def source(bench: str) -> str:
    return (gpu_check.BENCHES / f"{bench}.py").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--out", str(tmp_path / "out")]) == 2
    assert "there is no GPU that torch sees" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_all_parts_run_in_the_interpreter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A GPU's run, but for the device and the sizes."""
    assert gpu_check.main(["--out", str(tmp_path), "--interpreter"]) == 0, capsys.readouterr().out
    told = json.loads((tmp_path / "gpu-check.json").read_text())
    assert [part["name"] for part in told["parts"]] == ["tests", "bench paged_decode", "engine", "bench rotate"]
    assert told["parts"][0]["told"]["passed"] > 20
    assert told["parts"][0]["told"]["failed"] == 0
    engine = told["parts"][2]["told"]
    assert all(decode["graphs_s"] > 0 and decode["plain_s"] > 0 for decode in engine["decodes"])
    assert "triton" in engine["kernels"]["rms_norm"]
