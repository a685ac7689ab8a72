"""What is said to a service manager, heard at the other end of a real datagram socket."""

import os
import secrets

import pytest
from support.service_manager import ServiceManager

from halogend.control.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    address = str(tmp_path / "notify") if request.param == "path" else f"@halogend-test-{secrets.token_hex(8)}"
    manager = ServiceManager(address)
    yield manager
    manager.close()


def notifier(address, **more):
    made = Notifier(address, **more)
    assert made.is_heard
    return made


def test_each_word_is_one_datagram(manager):
    told = notifier(manager.address, clock=lambda: 12.5)
    told.status("loading")
    told.ready("serving chat")
    told.reloading("reading")
    told.extend(90)
    told.watchdog()
    told.stopping("stopping", 45)
    told.close()
    assert manager.heard() == [
        {"STATUS": "loading"},
        {"READY": "1", "STATUS": "serving chat"},
        {"RELOADING": "1", "MONOTONIC_USEC": "12500000", "STATUS": "reading"},
        {"EXTEND_TIMEOUT_USEC": "90000000"},
        {"WATCHDOG": "1"},
        {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "45000000", "STATUS": "stopping"},
    ]


def test_a_reason_of_many_lines_stays_one_status_and_short(manager):
    told = notifier(manager.address)
    told.status("one\nREADY=1\n" + "x" * 1000)
    told.close()
    (heard,) = manager.heard()
    assert list(heard) == ["STATUS"]
    assert heard["STATUS"].startswith("one READY=1 xxx")
    assert len(heard["STATUS"]) == 400
    assert heard["STATUS"].endswith("…")


def test_without_a_manager_nothing_is_said_and_nothing_fails():
    told = Notifier.from_environ({}, os.getpid())
    told.ready("x")
    told.close()
    assert not told.is_heard
    assert told.watchdog_s is None


def test_a_manager_that_went_away_harms_nobody(tmp_path):
    manager = ServiceManager(str(tmp_path / "notify"))
    told = notifier(manager.address)
    manager.close()
    told.ready("x")
    told.close()
    told.ready("after the end")


def test_a_manager_that_does_not_read_holds_nobody_up(manager):
    told = notifier(manager.address)
    for _ in range(5000):
        told.watchdog()
    told.close()
    assert 0 < len(manager.heard()) < 5000


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "78"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_of_another_process_is_none_of_ours(environ, watchdog_s, tmp_path):
    told = Notifier.from_environ({"NOTIFY_SOCKET": str(tmp_path / "x"), **environ}, 77)
    assert told.watchdog_s == watchdog_s
    told.close()


def test_a_watchdog_without_a_socket_is_not_fed():
    assert Notifier.from_environ({"WATCHDOG_USEC": "30000000"}, 77).watchdog_s is None


def test_an_address_of_an_unknown_kind_is_left_alone():
    assert not Notifier("vsock:2:1234").is_heard
