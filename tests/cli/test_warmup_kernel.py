"""`halogend warmup-kernel`: a folder is filled for a device that is not here, and found complete after that."""

import io
import json

import pytest

from halogend.cli import flash_server
from halogend.cli.kernel_cache import kernel_cache
from halogend.cli.kernel_progress import KernelProgress
from halogend.cli.main import main

pytestmark = pytest.mark.timeout(300)


def warmed(capsys, *words):
    status = main(["warmup-kernel", "--target", "ai_max_395", "--op", "sample", *words])
    return status, capsys.readouterr()


@pytest.mark.slow
def test_a_second_run_finds_the_folder_complete(tmp_path, capsys):
    status, told = warmed(capsys, "--cache-dir", str(tmp_path), "--json")
    assert status == 0
    first = json.loads(told.out)
    assert first["cache_dir"] == str(tmp_path)
    assert first["failed"] == []
    (done,) = first["targets"]
    assert (done["target"], done["compiled"], done["failed"]) == ("gfx1151", done["wanted"], 0)
    assert done["wanted"] > 0
    status, told = warmed(capsys, "--cache-dir", str(tmp_path))
    assert status == 0
    assert told.out.splitlines()[1].split() == ["gfx1151", str(done["wanted"]), "0", "0", "complete"]
    assert told.out.splitlines()[2] == f"in {tmp_path}"


def test_without_a_device_a_target_must_be_named(tmp_path, capsys):
    assert main(["warmup-kernel", "--cache-dir", str(tmp_path)]) == 2
    assert "no device is here whose kernels are compiled: name a target, of sm_80, " in capsys.readouterr().err


@pytest.mark.slow
def test_what_serves_goes_on_where_there_is_no_device(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    assert flash_server.main(["--warmup-kernel"]) == 0
    assert "no device is here" in capsys.readouterr().err


def test_places_of_the_cache(tmp_path):
    nowhere = tmp_path / "a" / "b"
    assert kernel_cache({"CACHE_DIRECTORY": "/c:/d", "HOME": "/h"}, nowhere).parts[-2:] == ("c", "kernels")
    assert kernel_cache({"HOME": "/h"}, tmp_path / "system") == tmp_path / "system/kernels"
    assert str(kernel_cache({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, nowhere)) == "/x/halogend/kernels"
    assert str(kernel_cache({"HOME": "/h"}, nowhere)) == "/h/.cache/halogend/kernels"
    assert kernel_cache({}, nowhere) is None


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_counts_what_is_missing_and_estimates_the_rest():
    ticks = iter([0.0, 10.0, 20.0])
    out = Terminal()
    events = [
        {"event": "found", "target": "sm_90", "wanted": 7, "there": 3},
        {"event": "compiled", "target": "sm_90", "op": "rotate"},
        {"event": "failed", "target": "sm_90", "op": "sample"},
        {"event": "done", "target": "sm_90"},
    ]
    with KernelProgress(out, lambda: next(ticks)) as progress:
        assert list(progress.follow(events)) == events
    lines = out.getvalue().split("\r\x1b[K")
    assert lines[1:] == [
        "compiling: 1 of 4 kernels, 30 s left, sm_90 rotate",
        "compiling: 2 of 4 kernels, 20 s left, sm_90 sample",
        "",
    ]
