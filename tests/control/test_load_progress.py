"""How far a load has come is told of all its engines."""

from types import SimpleNamespace

import pytest

from halogend.control.health import Pulse
from halogend.control.load_progress import LoadProgress, progress_of

MIB = 1 << 20


def _replica(stage, done=0, total=0):
    engine = Pulse(began=0.0, stage=stage, done=done * MIB, total=total * MIB)
    return SimpleNamespace(pulses=lambda: {"text": Pulse(began=0.0, stage="serving"), "engine": engine})


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ([], "starting"),
        ([SimpleNamespace(pulses=dict)], "starting"),
        ([_replica("starting")], "starting"),
        ([_replica("importing")], "importing"),
        ([_replica("loading", 100, 400)], "25 % (100 MiB of 400 MiB)"),
        ([_replica("loading", 400, 400), _replica("loading", 100, 400)], "62 % (500 MiB of 800 MiB)"),
        ([_replica("serving", 400, 400), _replica("loading", 0, 400)], "50 % (400 MiB of 800 MiB)"),
        ([_replica("serving", 400, 400), _replica("warming", 400, 400)], "warming"),
        ([_replica("serving", 400, 400)], "serving"),
    ],
)
def test_the_first_that_is_not_there_yet_and_the_bytes_of_all(replicas, words):
    assert progress_of(replicas).words == words


def test_the_bytes_are_those_of_all():
    found = progress_of([_replica("loading", 3, 4), _replica("loading", 1, 4)])
    assert found == LoadProgress("loading", 4 * MIB, 8 * MIB)
