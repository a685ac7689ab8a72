"""What an engine does for its memory while nobody asks anything of it."""

from __future__ import annotations

from halogend.engine.rest import AUDIT_EVERY_S, Chore, Rest


def test_chores_come_due_one_after_the_other_and_once() -> None:
    rest = Rest()
    assert rest.due(100.0) == []
    assert rest.due_in(100.0) == Chore.AUDIT.value
    assert rest.due(101.0) == [Chore.AUDIT]
    assert rest.due_in(101.0) == Chore.COMPACT.value - 1
    assert rest.due(160.0) == [Chore.COMPACT]
    assert rest.due(161.0) == []
    assert rest.due(5000.0) == [Chore.FLOOR]
    assert rest.due_in(5000.0) is None
    assert rest.due(9000.0) == []


def test_work_between_begins_the_wait_anew() -> None:
    rest = Rest()
    rest.due(0.0)
    rest.wake()
    assert rest.due_in(59.0) is None
    assert rest.due(59.0) == []
    assert rest.due(61.0) == [Chore.AUDIT]
    assert rest.due(118.9) == []
    assert rest.due(119.0) == [Chore.COMPACT]


def test_short_rests_are_not_audited_each_time() -> None:
    rest = Rest()
    audits = 0
    for second in range(0, 300, 2):
        rest.due(second)
        audits += rest.due(second + 1.0).count(Chore.AUDIT)
        rest.wake()
    assert audits == 300 / AUDIT_EVERY_S
