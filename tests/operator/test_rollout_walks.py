"""Walks over pods whose daemons load, fail, refuse, end and fall silent in any order: never more of those that answer
are in a change than may be, and in the end all serve what can be served."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from halogen_operator.pods import PodState
from halogen_operator.rollout import decide, most_unavailable
from halogen_operator.wanted import Wanted
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.operator_values import engine, model, pod, problem, receipt, wanted

NAMES = ("chat-a", "chat-b", "chat-c", "chat-d", "chat-e")
COLD = wanted(max_batch=1)


@cache
def text(size: int, count: int, limit: Any) -> Wanted:
    return wanted(max_batch=size, replicas=count, update={"maxUnavailable": limit})


@dataclass
class Daemon:
    """One pod. `serves` is the daemon's word, `ready` the cluster's, which comes later. `was_answering`: requests would
    be answered but for a change. What begins while the cluster does not see it takes no place."""

    name: str
    active: Wanted | None = None
    desired: Wanted | None = None
    serves: bool = False
    ready: bool = False
    is_silent: bool = False
    load: Wanted | None = None
    was_serving: bool = False
    was_answering: bool = False
    receipts: list[dict[str, Any]] = field(default_factory=list)

    def push(self, of: Wanted, *, replaces: bool) -> None:
        if self.load is not None:
            self.receipts[0] = {**self.receipts[0], "outcome": "superseded"}
        else:
            self.was_answering = (self.ready and self.serves) or self.was_answering
        self.receipts.insert(0, receipt(of, None, number=len(self.receipts) + 1))
        self.was_serving = self.serves or self.was_serving
        self.desired = self.load = of
        self.serves = self.serves and not replaces

    def end(self, outcome: str, **more: Any) -> None:
        """The change that runs ends so."""
        goal, self.load = self.load, None
        self.receipts[0] = {**self.receipts[0], "outcome": outcome, **more}
        if outcome == "applied":
            self.active, self.serves = goal, True
        elif outcome == "rejected":
            self.desired = self.active
            self.serves = self.was_serving
        else:
            self.serves = self.was_serving
        self.was_serving = False

    def restart(self) -> None:
        """With what the ConfigMap has: an older document, at once."""
        if self.load is not None:
            self.end("failed", problems=[problem("", code="HRT-1019")])
        self.active = self.desired = COLD
        self.serves, self.was_serving, self.was_answering, self.ready = True, False, False, False

    def die(self) -> None:
        """Its engine, for good, while nothing is under way."""
        self.serves = self.was_answering = False

    def looked_at(self) -> None:
        """By the kubelet."""
        self.ready = self.serves
        self.was_answering = self.was_answering and not (self.ready and self.load is None)

    @property
    def is_out(self) -> bool:
        return self.was_answering and (self.load is not None or not self.ready)

    def state(self) -> PodState:
        view = pod(self.name, ready=self.ready)
        if self.is_silent:
            return PodState(view, None, "no answer")
        models = {} if self.active is None and self.load is None else {"chat": self._model()}
        return PodState(view, engine(self.desired, active=self.active or COLD, models=models, receipts=self.receipts))

    def _model(self) -> dict[str, Any]:
        loaded = None if self.load is None else (1, 2)
        if self.serves:
            return model(loaded=loaded)
        if loaded is not None:
            return model("restarting" if self.was_serving else "loading", loaded=loaded)
        return model("failed", trouble="no memory")


class Walk(RuleBasedStateMachine):
    @initialize(count=st.integers(2, 5), warm=st.integers(0, 5), limit=st.sampled_from([1, 1, 2, "50%", "100%"]))
    def begin(self, count: int, warm: int, limit: Any) -> None:
        self.spec = (count, limit)
        self.wanted = text(2, *self.spec)
        self.daemons = [Daemon(name) for name in NAMES[:count]]
        for each in self.daemons[:warm]:
            each.restart()
            each.looked_at()

    def _decided(self) -> tuple[str, ...]:
        return decide(self.wanted, [each.state() for each in self.daemons]).push

    @rule(replaces=st.booleans())
    def reconcile(self, replaces: bool) -> None:
        """One that is neither ready nor answers is as good as gone: it holds nobody up, whatever it was about."""
        pushed = self._decided()
        for each in self.daemons:
            if each.is_silent and not each.ready:
                each.was_answering = False
            if each.name in pushed:
                assert not each.is_silent
                assert each.load is not self.wanted, "it is handed in twice"
                each.push(self.wanted, replaces=replaces)

    @rule(size=st.integers(2, 4))
    def edit(self, size: int) -> None:
        self.wanted = replace(text(size, *self.spec), generation=self.wanted.generation + 1)

    @rule(index=st.integers(0, 4), outcome=st.sampled_from(["applied", "applied", "failed", "rejected", "rolled_back"]))
    def ends(self, index: int, outcome: str) -> None:
        each = self.daemons[index % len(self.daemons)]
        if each.load is not None:
            each.end(outcome)

    @rule(index=st.integers(0, 4))
    def restarts(self, index: int) -> None:
        self.daemons[index % len(self.daemons)].restart()

    @rule(index=st.integers(0, 4))
    def dies(self, index: int) -> None:
        each = self.daemons[index % len(self.daemons)]
        if each.load is None:
            each.die()

    @rule()
    def are_looked_at(self) -> None:
        for each in self.daemons:
            each.looked_at()

    @rule(index=st.integers(0, 4))
    def falls_silent_or_speaks_again(self, index: int) -> None:
        each = self.daemons[index % len(self.daemons)]
        each.is_silent = not each.is_silent

    @invariant()
    def no_more_in_change_than_may_be(self) -> None:
        assert sum(each.is_out for each in self.daemons) <= most_unavailable(self.wanted)

    @invariant()
    def whoever_answers_no_request_and_wants_it_is_handed_it(self) -> None:
        pushed = self._decided()
        for each in self.daemons:
            is_new = not each.receipts and each.active is None and not each.is_silent
            assert each.name in pushed or not is_new

    def teardown(self) -> None:
        """A sound edit, and everybody answers: it comes to its end."""
        if not hasattr(self, "daemons"):
            return
        self.edit(5)
        for each in self.daemons:
            each.is_silent = False
        for _ in range(4 * len(self.daemons)):
            self.reconcile(False)
            self.no_more_in_change_than_may_be()
            for each in self.daemons:
                if each.load is not None:
                    each.end("applied")
                each.looked_at()
        found = decide(self.wanted, [each.state() for each in self.daemons])
        assert found.is_done, found
        assert found.serving == tuple(each.name for each in self.daemons)


class TestWalk(Walk.TestCase):
    settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.slow
class TestLongWalk(Walk.TestCase):
    settings = settings(max_examples=500, stateful_step_count=40, deadline=None)
