"""Four conversations with one system prompt and room for three, by the simulator's own command."""

from __future__ import annotations

import argparse

from halogend.sim import reuse
from halogend.sim.timing import SMOLLM2


def test_four_conversations_with_room_for_three() -> None:
    """Zipf arrivals find at least 0.9 of the offline optimum's tokens, round robin 0.6, where plain LRU finds half."""
    report = reuse.run(argparse.Namespace(requests=240, conversations=4, room=3, seed=1), SMOLLM2)
    missed = [bar for bar in report.bars if not bar.met]
    assert not missed
    assert report.rows["round robin, steady"]["LRU of optimum"] < 0.55
