"""`halogend warmup-kernel`: a folder is filled for a device that is not here, and found complete after that."""

import io
import json

import pytest
from support.fake_devices import accelerator

from halogend import daemon
from halogend.cli import flash_server, warmup_kernel
from halogend.cli.kernel_cache import kernel_cache
from halogend.cli.kernel_progress import KernelProgress
from halogend.cli.main import main
from halogend.config.facts import DeviceFacts
from halogend.control import machine
from halogend.control.machine import Machine
from halogend.obs import log

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


def test_what_serves_goes_on_where_there_is_no_device(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    assert flash_server.main(["--warmup-kernel"]) == 0
    assert "no accelerator is here that a model would be on" in capsys.readouterr().err


DOCUMENT = """\
apiVersion: halogen.dev/v1alpha1
models:
  - {name: a, model: /a.gguf, device: h100, kernels: {cache_dir: %s}}
  - {name: b, model: /b.gguf, device: mi300x, kernels: {cache_dir: %s}}
  - {name: c, model: /c.gguf, device: cpu:0}
"""


@pytest.fixture
def two_kinds(monkeypatch):
    """A machine with an H100 and an MI300X, and compilers that say what they are told to do."""
    other = accelerator(id="rocm:0", aliases=("mi300x:0",), kind="rocm", product="mi300x", arch="gfx942")
    there = Machine(2, True, (accelerator(), other, DeviceFacts(id="cpu:0", memory_bytes=1 << 30)))
    told = []

    async def no_daemon(options):
        return 0

    monkeypatch.setattr(daemon, "run", no_daemon)
    monkeypatch.setattr(log, "configure_daemon", lambda level: None)
    monkeypatch.setattr(machine, "probe", lambda: there)

    def compiled(folder, words, as_json=False):
        told.append((str(folder), words))
        return 0

    monkeypatch.setattr(warmup_kernel, "warm_up", compiled)
    return told


def test_without_a_target_it_is_every_kind_of_device_here(two_kinds):
    assert main(["warmup-kernel", "--cache-dir", "/kernels"]) == 0
    assert main(["warmup-kernel", "--cache-dir", "/kernels", "--target", "h100"]) == 0
    assert [words for _, words in two_kinds] == [
        ["--target", "sm_90", "--target", "gfx942", "--here"],
        ["--target", "h100"],
    ]


def test_what_a_document_runs_is_compiled_where_it_says(two_kinds, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(DOCUMENT % ("/kernels/a", "/kernels/b"))
    assert main(["run", "--config", str(file), "--warmup-kernel"]) == 0
    assert two_kinds == [
        ("/kernels/a", ["--target", "sm_90", "--here"]),
        ("/kernels/b", ["--target", "gfx942", "--here"]),
    ]
    two_kinds.clear()
    file.write_text(DOCUMENT % ("/kernels/a", "/kernels/a") + "none: of this\n")
    assert main(["run", "--config", str(file), "--warmup-kernel"]) == 0, "what is wrong with it the daemon says"
    assert two_kinds == [("/kernels/a", ["--target", "sm_90", "--target", "gfx942", "--here"])]


def test_without_a_document_all_that_is_here_is_compiled(two_kinds, tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", "/kernels")
    assert main(["run", "--config", str(tmp_path / "none.yaml"), "--warmup-kernel"]) == 0
    assert flash_server.main(["--warmup-kernel"]) == 0
    assert two_kinds == [("/kernels/kernels", ["--target", "sm_90", "--target", "gfx942", "--here"])] * 2
    two_kinds.clear()
    assert flash_server.main(["--warmup-kernel", "--model-path", "/a.gguf"]) == 0
    assert two_kinds == [("/kernels/kernels", ["--target", "sm_90", "--here"])], "what `auto` is here"


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
