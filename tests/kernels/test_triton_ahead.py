"""Every kernel compiles for every target without a device, without a spill, and is found again.

Compiling needs a process that does not interpret, so all of this is in children. Of each kernel a target sees one of
the variants that few shapes lead to, the next target the next one; all of all shapes is slow.
"""

import json
import os
import subprocess
import sys

import pytest
from halogen_kernels.triton.rehearsal import operators
from halogen_kernels.triton.targets import TARGETS

NAMES = [target.name for target in TARGETS]
FEW = ("--shapes", "few", "--each", "1")

pytestmark = pytest.mark.timeout(600)


def environ():
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def python(*words, timeout=600):
    return subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, timeout=timeout, env=environ()
    )


def ahead(directory, *words):
    targets = [word for name in NAMES for word in ("--target", name)]
    done = python("-m", "halogen_kernels.triton.ahead", "--cache-dir", str(directory), *targets, *words)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events, done.stderr
    return done.returncode, events


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def files(directory):
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    directory = tmp_path_factory.mktemp("kernels")
    return directory, *ahead(directory, *FEW)


def test_every_operator_compiles_for_every_target_and_spills_nothing(filled):
    _, status, events = filled
    assert of_kind(events, "failed") == []
    assert status == 0
    compiled = of_kind(events, "compiled")
    assert {(event["op"], event["target"]) for event in compiled} == {
        (op, target) for op in operators() for target in NAMES
    }
    assert [event for event in compiled if event["faults"]] == []
    assert all(event["registers"] > 0 for event in compiled)


def test_a_second_run_finds_it_complete_and_writes_nothing(filled):
    directory, _, first = filled
    before = files(directory)
    status, events = ahead(directory, *FEW)
    assert status == 0
    assert {event["event"] for event in events} == {"found", "done"}
    for event in of_kind(events, "found"):
        assert event["there"] == event["wanted"] > 0
    assert [event["wanted"] for event in of_kind(events, "done")] == [e["wanted"] for e in of_kind(first, "done")]
    assert files(directory) == before


PREPARE = """
import sys
from pathlib import Path
from halogen_kernels.triton import cache, preparing, rehearsal, shapes, targets
with rehearsal.pretending(targets.named("ai_max_395")):
    for directory in sys.argv[2:]:
        may_compile, moves = sys.argv[1] == "auto", []
        moved = lambda: moves.append(1)
        try:
            only = ["sample"]
            count = preparing.prepare(shapes.FEW, Path(directory), may_compile=may_compile, moved=moved, only=only)
            print(count, len(moves) >= count)
        except cache.KernelNotFoundError as error:
            print(error)
            print(error.remedy)
"""


def test_what_may_not_be_compiled_is_found_wherever_the_cache_lies_and_named_where_it_is_missing(tmp_path):
    made, elsewhere, empty = tmp_path / "made", tmp_path / "elsewhere", tmp_path / "empty"
    empty.mkdir()
    filled = python("-c", PREPARE, "auto", str(made)).stdout
    count = int(filled.split()[0])
    assert filled == f"{count} True\n"
    assert count > 0
    made.rename(elsewhere)
    said, remedy, found = python("-c", PREPARE, "never", str(empty), str(elsewhere)).stdout.splitlines()
    assert said.startswith(f"kernel not found for op: sample: {empty} has no ")
    assert said.endswith(" for gfx1151")
    assert remedy == f"halogend warmup-kernel --target gfx1151 --cache-dir {empty}"
    assert list(empty.iterdir()) == []
    assert found == filled.strip()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_shapes_compile_for_all_targets(tmp_path):
    status, events = ahead(tmp_path, "--shapes", "all")
    assert of_kind(events, "failed") == []
    assert status == 0
    assert [event for event in of_kind(events, "compiled") if event["faults"]] == []
