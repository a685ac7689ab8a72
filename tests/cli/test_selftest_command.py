"""`halogend selftest`, and what it says."""

import json

import pytest
from support.fake_devices import accelerator

from halogend.cli import selftest
from halogend.cli.main import main
from halogend.config.facts import DeviceFacts
from halogend.control import machine as control_machine
from halogend.control.devices import HOST, SWITCH, Link, Look, Seen
from halogend.control.machine import Machine

CPU = DeviceFacts(id="cpu:0", memory_bytes=1 << 30, aliases=("cpu",))


def seen(number, peers):
    links = (
        Link(kind="pcie", to=HOST, detail="gen 5 x16", bytes_per_s=64e9),
        *(Link(kind="nvlink", to=to, detail="18 links", bytes_per_s=450e9) for to in peers),
    )
    return Seen(
        kind="cuda",
        number=number,
        name="NVIDIA H100",
        arch="sm_90",
        address=f"GPU-{number}",
        bus=f"0000:0{number}:00.0",
        memory_bytes=1,
        used_bytes=0,
        links=links,
    )


@pytest.fixture
def machine():
    two = (accelerator(), accelerator(id="cuda:1", aliases=("h100:1",), address="GPU-1"))
    return Machine(2, True, (*two, CPU), Look(devices=(seen(0, [SWITCH]), seen(1, [SWITCH]))))


@pytest.mark.slow
def test_the_whole_command(capsys, tmp_path):
    assert main(["selftest", "--device", "cpu", "--json", "--seed", "3", "--state", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["seed"], found["links"]) == (True, 3, [])
    (device,) = found["devices"]
    assert (device["device"], device["backend"], device["ok"]) == ("cpu:0", "cpu", True)
    assert len({each["operator"] for each in device["results"]}) == 8
    assert list(tmp_path.iterdir()) == [], "there is no link to take note of"


def test_a_device_that_is_not_there_is_a_usage_error(capsys):
    assert main(["selftest", "--device", "h100:7"]) == 2
    assert "the device h100:7 is not there; this machine has" in capsys.readouterr().err
    assert main(["selftest", "--device", "abacus"]) == 2


def test_devices_are_chosen_by_any_name_and_all_that_can_be_used_by_none(machine):
    assert [each.id for each in selftest._chosen(machine, [])] == ["cuda:0", "cuda:1", "cpu:0"]
    assert [each.id for each in selftest._chosen(machine, ["h100:1"])] == ["cuda:1"]
    broken = Machine(2, True, (CPU, accelerator(unusable="it is divided")))
    assert [each.id for each in selftest._chosen(broken, [])] == ["cpu:0"]
    with pytest.raises(ValueError, match="no engine can run on h100: it is divided"):
        selftest._chosen(broken, ["h100"])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("host", 1), ("host", "cuda:1", "pcie", 64e9)),
        ((0, "host"), ("cuda:0", "host", "pcie", 64e9)),
        ((0, 1), ("cuda:0", "cuda:1", "nvlink", 450e9)),
    ],
)
def test_a_link_is_held_against_its_data_sheet(machine, ends, expected):
    source, target = ends
    measured = {"from": source, "to": target, "bytes_per_s": 1e9}
    found = selftest._link(machine, ["cuda:0", "cuda:1"], measured)
    assert (found.source, found.target, found.kind, found.nominal_bytes_per_s) == expected
    assert found.is_slow


@pytest.mark.parametrize(("words", "folder"), [([], "/cache/kernels"), (["--cache-dir", "/own"], "/own")])
def test_kernels_are_those_that_engines_launch(machine, monkeypatch, words, folder, capsys):
    told = []

    def child(given, environ, backend, device):
        told.append((given, environ, backend))
        yield 0

    monkeypatch.setenv("CACHE_DIRECTORY", "/cache")
    monkeypatch.setattr(selftest, "_child", child)
    monkeypatch.setattr(control_machine, "probe", lambda: machine)
    assert main(["selftest", "--device", "cuda:1", "--seed", "3", *words]) == 1, "nothing was tried"
    (given, environ, backend), _links = told
    assert given == ["--backend", "triton", "--device", "cuda:0", "--seed", "3", "--kernel-cache", folder]
    assert (environ["CUDA_VISIBLE_DEVICES"], backend) == ("GPU-1", "triton")
    assert "after 0 results" in capsys.readouterr().out


def result(**more):
    known = {"operator": "linear", "kernel": "k", "dtype": "bf16", "case": "c", "error": 0.1, "allowed": 0.2}
    return {**known, "failure": "", "ok": True, **more}


def test_a_row_shows_the_worst_of_an_operator():
    rows = list(selftest._rows([result(error=0.05), result(error=0.15), result(operator="rotate", error=None)]))
    assert len(rows) == 2
    assert "off by 1.50e-01 of 2.00e-01" in rows[0]
    assert "not finite" in rows[1]
    assert "no kernel" in next(selftest._rows([result(failure="RuntimeError: no kernel", error=None)]))
