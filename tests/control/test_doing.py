"""What a silent process does, told from two looks at /proc: each state on a played one, some on the real."""

import os
import signal
import subprocess
import sys
import time

import pytest
from structlog.testing import capture_logs
from support.fake_proc import FakeProc

from halogend.control.doing import Doing, Looks, compare, read_facts

PID = 4242


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path)


def seen(proc, first, then, over_s=5.0):
    """`first` and `then` are what `FakeProc.process` is told."""
    proc.process(PID, **first)
    before = read_facts(PID, proc.root)
    proc.process(PID, **then)
    return compare(before, read_facts(PID, proc.root), over_s)


@pytest.mark.parametrize(
    ("first", "then", "doing"),
    [
        ({"states": "SS"}, {"states": "SS"}, Doing.RESTS),
        ({"states": "SR", "cpu_s": 50.0}, {"states": "SR", "cpu_s": 54.9}, Doing.WORKS),
        ({"states": "SS", "cpu_s": 50.0}, {"states": "SS", "cpu_s": 51.1}, Doing.WORKS),
        ({"states": "SR", "cpu_s": 50.0}, {"states": "SR", "cpu_s": 50.3}, Doing.STARVES),
        ({"states": "SD"}, {"states": "SD"}, Doing.DISK),
        ({"states": "DS"}, {"states": "SS"}, Doing.RESTS),
        ({"states": "SD"}, {"states": "SD", "major_faults": 400}, Doing.PAGES),
        ({"states": "SR"}, {"states": "SR", "cpu_s": 4.0, "major_faults": 400}, Doing.PAGES),
        ({"states": "TT"}, {"states": "TT"}, Doing.STOPPED),
        ({"states": "RR"}, {"states": "tS", "cpu_s": 4.0}, Doing.STOPPED),
        ({"states": "SS"}, {"states": "ZS"}, Doing.GONE),
    ],
)
def test_each_state_is_told_from_the_others(proc, first, then, doing):
    assert seen(proc, first, then) is doing


@pytest.mark.parametrize(
    ("line", "file", "text", "doing"),
    [
        ("0::/halogen.slice/x", "halogen.slice/x/cgroup.events", "populated 1\nfrozen 1\n", Doing.FROZEN),
        ("0::/halogen.slice/x", "halogen.slice/x/cgroup.events", "populated 1\nfrozen 0\n", Doing.DISK),
        ("0::/", "cgroup.events", "populated 1\nfrozen 1\n", Doing.FROZEN),
        ("7:freezer:/x", "freezer/x/freezer.state", "FROZEN\n", Doing.FROZEN),
        ("7:freezer:/x", "freezer/x/freezer.state", "THAWED\n", Doing.DISK),
        ("7:freezer:/elsewhere", "freezer/x/freezer.state", "FROZEN\n", Doing.DISK),
    ],
)
def test_a_frozen_control_group_is_told_from_a_disk(proc, line, file, text, doing):
    """A frozen process is shown as one that waits for a disk."""
    proc.process(PID, states="DD")
    proc.group(PID, line, file, text)
    assert seen(proc, {"states": "DD"}, {"states": "DD"}) is doing


@pytest.mark.parametrize(("full", "doing"), [(65.0, Doing.PAGES), (3.0, Doing.STARVES)])
def test_a_machine_short_of_memory_is_told_where_it_can_be_read(proc, full, doing):
    proc.pressure(full)
    assert seen(proc, {"states": "R"}, {"states": "R"}) is doing


def test_a_thread_that_ends_while_we_look_does_not_make_its_process_gone(proc):
    proc.process(PID, states="SR", cpu_s=50.0)
    (proc.root / "proc" / str(PID) / "task" / str(PID + 7)).mkdir()
    facts = read_facts(PID, proc.root)
    assert facts is not None
    assert facts.states == {"S", "R"}


def test_looks_go_back_ten_seconds_and_are_forgotten_with_the_suspicion(proc):
    looks, pids = Looks(proc.root, "chat"), {"engine": PID, "text": PID + 100}
    proc.process(PID, states="R", cpu_s=0.0)
    assert looks.take(["engine"], pids, 0.0) == {}
    with capture_logs() as logs:
        for second in range(1, 31):
            proc.process(PID, states="R", cpu_s=min(float(second), 10.0))
            found = looks.take(["engine"], pids, float(second))
            assert found == {"engine": Doing.WORKS if second < 19 else Doing.STARVES}, second
    assert [each["doing"] for each in logs] == ["takes processor time", "gets no processor"]
    assert looks.take([], pids, 31.0) == {}
    assert looks.take(["engine"], pids, 32.0) == {}
    assert looks.take(["engine", "text"], pids, 33.0) == {"engine": Doing.STARVES}
    assert looks.take(["engine", "text"], pids, 34.0)["text"] is Doing.GONE


LOOP = "print(1, flush=True)\nwhile True: pass"
SLEEP = "print(1, flush=True)\nimport time\ntime.sleep(60)"


@pytest.mark.parametrize(
    ("code", "signals", "wanted"),
    [(LOOP, (), {Doing.WORKS, Doing.STARVES}), (SLEEP, (), {Doing.RESTS}), (LOOP, (signal.SIGSTOP,), {Doing.STOPPED})],
    ids=["loops", "sleeps", "stopped"],
)
def test_a_real_process_is_read_as_what_it_is(code, signals, wanted):
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as popen:
        try:
            popen.stdout.readline()
            for number in signals:
                os.kill(popen.pid, number)
                os.waitid(os.P_PID, popen.pid, os.WSTOPPED)
            while code == SLEEP and "R" in read_facts(popen.pid).states:  # it has said so, and does not sleep yet
                pass
            before, began = read_facts(popen.pid), time.monotonic()
            after = before
            while after.cpu_s - before.cpu_s < 0.05 and time.monotonic() - began < 0.2:
                after = read_facts(popen.pid)
            assert compare(before, after, time.monotonic() - began) in wanted
        finally:
            popen.kill()
    assert read_facts(popen.pid) is None
