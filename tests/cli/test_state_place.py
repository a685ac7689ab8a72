"""Where a daemon keeps its state, and what the commands say of a hold and of drift."""

from pathlib import Path

import pytest

from halogend.cli.show import hold_line, receipt_lines
from halogend.cli.state import state_directory
from halogend.cli.status_table import status_lines
from halogend.control.receipts import Milestone, Outcome, Receipts


@pytest.fixture
def system(tmp_path):
    """A stand-in for /var/lib/halogend: there and writable, to be made, or out of reach."""

    def make(kind):
        path = tmp_path / kind / "halogend"
        if kind == "there":
            path.mkdir(parents=True)
        elif kind == "to be made":
            path.parent.mkdir()
        return path

    return make


HOME = {"HOME": "/home/me"}


@pytest.mark.parametrize(
    ("stated", "environ", "kind", "expected"),
    [
        (Path("/s"), {"STATE_DIRECTORY": "/d"}, "there", "/s"),
        (None, {"STATE_DIRECTORY": "/d:/e", **HOME}, "there", "/d"),
        (None, HOME, "there", None),
        (None, HOME, "to be made", None),
        (None, {"STATE_DIRECTORY": "", **HOME}, "out of reach", "/home/me/.local/state/halogend"),
        (None, {"XDG_STATE_HOME": "/x", **HOME}, "out of reach", "/x/halogend"),
    ],
)
def test_the_place_of_the_state(system, stated, environ, kind, expected):
    path = system(kind)
    assert state_directory(stated, environ, path) == (path if expected is None else Path(expected))


@pytest.mark.parametrize("environ", [{}, {"HOME": "", "XDG_STATE_HOME": ""}])
def test_without_a_home_there_is_no_place_and_it_is_said(system, capsys, environ):
    """A folder that everybody may make is nobody's own."""
    assert state_directory(None, environ, system("out of reach")) is None
    said = capsys.readouterr().out
    assert "state_not_kept" in said
    assert "--state" in said


def test_a_hold_is_one_line():
    hold = {"since": 0.0, "by": "uid:7", "put_off": False}
    assert hold_line(hold).endswith("by uid:7; `halogend resume` frees them")
    assert hold_line({**hold, "put_off": True}).endswith("frees them and applies what was put off")


STATUS = {
    "version": "1",
    "uptime_s": 1.0,
    "source": "c.yaml",
    "revision": {"desired": "a", "active": "a"},
    "settled": True,
    "models": {},
    "memory": {},
    "last_receipt": None,
    "hold": None,
    "drift": None,
    "state": None,
    "listeners": {},
    "auth": "open",
    "keys": [],
}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("drift", {"receipt": "r3", "source_revision": "abc"}, "this is the document of r3, the source holds abc"),
        ("drift", {"receipt": "r3", "source_revision": None}, "the source cannot be used"),
        ("state", {"directory": "/s", "trouble": "No space left"}, "state is not kept in /s: No space left"),
        ("hold", {"since": 0.0, "by": "uid:7", "put_off": False}, "changes are held since"),
    ],
)
def test_the_status_says_what_keeps_the_daemon_from_its_source(key, value, said):
    assert said not in "\n".join(status_lines(STATUS))
    assert said in "\n".join(status_lines({**STATUS, key: value}))


def test_a_receipt_says_where_its_document_came_from():
    receipt = Receipts(clock=lambda: 0.0).open("rollback", "uid:0", "kept:r3")
    receipt.outcome = Outcome.APPLIED
    receipt.reach(Milestone.CLOSED, 1.0)
    assert receipt_lines(receipt.view())[0] == "r1: applied  (trigger rollback, by uid:0, kept:r3)"
