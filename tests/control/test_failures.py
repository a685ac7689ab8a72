"""L3: whatever fails, at whatever step of whatever way, all is as it was; or the change is made, and all of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.played.failures import (
    FAILURES,
    REFUSED,
    Manner,
    Run,
    busy,
    dies,
    does_not_come_back,
    moved,
    our_own,
    prepares,
    refused,
    silent,
)
from support.played.moments import Moments, steps_in_code
from support.played.state import at_rest, becomes, differences, state
from support.played.world import GIB, World, document, reached, until

from halogend.control import mend, recover, replica, replica_changes, shrink
from halogend.control.answer import Answer
from halogend.control.receipts import Milestone

ROOM = 608 << 20  # two generations, and less beside them than the pool of `TIGHT`
TIGHT = {"kv_cache_bytes": "90MiB", "max_batch": 4096}
PARTS = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}]
SPARE = [{"id": "cpu:0", "cores": "0", "memory": "520MiB"}, {"id": "cpu:1", "cores": "1", "spare": True}]
IDLE = [{"id": "cpu:0", "cores": "0", "memory": "520MiB"}, {"id": "cpu:1", "cores": "1"}]
ATOMIC = {"reload": {"atomic": True, "max_parallel_loads": 4}}
ROLLING = {"reload": {"strategy": "rolling"}}
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}
ONE = {"exec_mode": "data_parallel", "device": ["cpu:1"]}
PROBATION = {"probation": {"s": 600, "max_error_rate": 0.5, "min_requests": 2}}
REPLACE = {"reload": {"strategy": "replace"}}
# No field that makes steps smaller: what an engine keeps of larger ones, one that is loaded anew has not.
LIVE = {"max_queue": 7, "max_prompt_len": 9, "kv_cache_bytes": "2MiB"}
UPDATE = {
    **prepares("update", by="new"),
    "the text process refuses": refused("prepare", "text", by="new"),
    "the text process dies": dies("prepare", "text", by="new"),
    "the engine dies of the commit": dies("commit", "engine", by="new"),
    "the engine never confirms": silent("commit", "engine", by="new"),
}
OTHERS = {
    "another's engine refuses": lambda run: run.order("prepare", "fail", "engine", "c", **REFUSED),
    "another does not load": lambda run: run.order("load", "fail", "text", "e", **REFUSED),
    "the port was taken meanwhile": busy("commit"),
}
ACCESS = {
    "there is no such key": moved("two.api-key"),
    "there is no such certificate": moved("two/server.pem"),
    "the certificate is of another key": moved("two/server.key", instead="one/server.key"),
}
ADOPT = {
    "the engine refuses": refused("prepare", "engine", by="new"),
    "the text process dies": dies("prepare", "text", by="new"),
    "a fault of ours": our_own("adopt"),
}
TAKE_BACK = {
    "the engine refuses": refused("prepare", "engine", by="new"),
    "the text process refuses": refused("prepare", "text", by="new"),
    "the text process never answers": silent("prepare", "text", by="new"),
}

# --- the ways ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """From a document to another. `steps` are those of a change that nothing disturbs; `old` and `new` the files of
    the generations it is about. `streams`: a request of the old one goes on from before until the test ends it.
    `is_new`: a model comes, so that a failure leaves a model that does not serve. `more` are failures that this way
    alone has. `is_one_way`: what it made cannot be taken back without a trace. `waits`: so many tasks wait for the
    request that goes on."""

    before: Callable[[World], str]
    after: Callable[[World], str]
    steps: tuple[str, ...]
    old: str = "a"
    new: str = "b"
    memory: int = 64 * GIB
    first: tuple[Callable[[World], str], ...] = ()
    streams: bool = False
    needs: int = 1
    is_new: bool = False
    fails: tuple[str, ...] = ()
    more: dict[str, dict[str, Manner]] = field(default_factory=dict)
    is_one_way: bool = False
    ordered: bool = True
    waits: int = 1

    def manners(self, step: str) -> dict[str, Manner]:
        return {**({} if self.is_one_way else FAILURES[step]), **self.more.get(step, {})}

    @property
    def walked(self) -> tuple[str, ...]:
        """The steps at which failures are injected."""
        return self.fails or ("validate", *dict.fromkeys(self.steps))


def _of(
    *names: str, file: str | None = None, top: dict[str, Any] | None = None, **fields: Any
) -> Callable[[World], str]:
    return lambda world: document(*(world.model(name, file or name, **fields) for name in names), **(top or {}))


QUICK = ("remove", "keys", "update", "replace", "take back", "take back and change", "atomic")
BEFORE_SWITCH = ("update", "take_back", "shrink", "load")
SWITCHED = ("switch", "drain", "reclaim")
WAYS = {
    "create": Way(_of("c"), lambda w: document(w.model("c"), w.model("a", "b")), ("load", "switch"), is_new=True),
    "remove": Way(_of("a", "c"), _of("c"), ("drain", "reclaim")),
    "update": Way(_of("a"), _of("a", **LIVE), ("update",), new="a", more={"update": UPDATE}),
    "keys": Way(
        lambda world: document(world.model("a"), **world.server("one")),
        lambda world: document(world.model("a"), **world.server("two")),
        (),
        more={"validate": ACCESS},
    ),
    "overlap": Way(_of("a"), _of("a", file="b"), ("load", *SWITCHED)),
    "spare": Way(
        _of("a", top={"devices": SPARE}, **TIGHT),
        _of("a", file="b", top={"devices": SPARE}, **TIGHT),
        ("load", *SWITCHED),
        memory=4 * GIB,
        needs=2,
    ),
    "idle": Way(
        _of("a", top={"devices": IDLE}, **TIGHT),
        _of("a", file="b", top={"devices": IDLE}, **TIGHT),
        ("load", *SWITCHED),
        memory=4 * GIB,
        needs=2,
    ),
    "shrink": Way(
        _of("a", **TIGHT),
        _of("a", file="b", **TIGHT),
        ("shrink", "load", *SWITCHED),
        fails=("validate", "shrink", "grow", "load", *SWITCHED),
        memory=ROOM,
    ),
    "replace": Way(
        _of("a", top=REPLACE),
        _of("a", file="b", top=REPLACE),
        ("drain", "reclaim", "load", "switch"),
        more={"load": {"the old one does not come back": does_not_come_back}},
    ),
    "take back": Way(
        _of("a", file="b"),
        _of("a"),
        ("take_back", *SWITCHED),
        fails=("validate", "take_back", "drain", "reclaim"),  # a death at the switch ends the request that goes on
        old="b",
        new="a",
        first=(_of("a"),),
        streams=True,
    ),
    "take back and change": Way(
        _of("a", file="b"),
        _of("a", **LIVE),
        ("take_back", *SWITCHED),
        fails=("take_back",),
        more={"take_back": TAKE_BACK},
        is_one_way=True,
        old="b",
        new="a",
        first=(_of("a"),),
        streams=True,
    ),
    "probation": Way(_of("a"), _of("a", file="b", **PROBATION), ("load", "switch", "probation", "drain", "reclaim")),
    "a replica more": Way(
        _of("a", top={"devices": PARTS}, **ONE),
        _of("a", top={"devices": PARTS}, **BOTH),
        ("update", "load"),
        new="a",
        needs=2,
    ),
    "a replica less": Way(
        _of("a", top={"devices": PARTS}, **BOTH),
        _of("a", top={"devices": PARTS}, **ONE),
        ("update", "drain", "reclaim"),
        needs=2,
    ),
    "a replica back": Way(
        _of("a", top={"devices": PARTS}, **ONE),
        _of("a", top={"devices": PARTS}, **BOTH),
        ("update", "take_back"),
        new="a",
        first=(_of("a", top={"devices": PARTS}, **BOTH),),
        streams=True,
        waits=2,
        needs=2,
    ),
    "replicas": Way(
        _of("a", top={"devices": PARTS}, **BOTH),
        _of("a", file="b", top={"devices": PARTS}, **BOTH),
        ("load", *SWITCHED),
        needs=2,
    ),
    "rolling": Way(
        _of("a", top={"devices": PARTS}, **BOTH, **ROLLING),
        _of("a", file="b", top={"devices": PARTS}, **BOTH, **ROLLING),
        ("drain", "reclaim", "load", "drain", "reclaim", "load", *SWITCHED),
        fails=("validate", "drain", "reclaim", "load", "roll_back", "switch"),
        needs=2,
    ),
    "atomic": Way(
        lambda world: document(*(world.model(name) for name in "acd"), **ATOMIC, **world.server("one")),
        lambda world: document(
            world.model("a", "b"), world.model("c", **LIVE), world.model("e"), **ATOMIC, **world.server("two")
        ),
        ("load", "load", "update", "switch", "switch", "drain", "reclaim", "drain", "reclaim"),
        more={"update": OTHERS},
        ordered=False,
    ),
}

# --- the walk --------------------------------------------------------------------------------------------------


@pytest.fixture
def moments(monkeypatch):
    with capture_logs():  # tracebacks of faults of ours, drawn, would take most of the time
        yield _moments(monkeypatch)


def _moments(monkeypatch):
    monkeypatch.setattr(replica_changes, "_PREPARE_LIMIT_S", 1.0)
    monkeypatch.setattr(shrink, "SHRINK_LIMIT_S", 1.0)
    monkeypatch.setattr(replica, "_STOP_GRACE_S", 0.5)
    monkeypatch.setattr(recover, "BACKOFF_S", (0.0,) * 20)
    monkeypatch.setattr(mend, "BACKOFF_S", (0.0,) * 20)
    monkeypatch.setattr("halogend.control.unit.REFUSED_S", (0.0,))
    return Moments(monkeypatch)


def test_every_step_in_the_code_has_its_failures_and_is_walked():
    assert steps_in_code() == FAILURES.keys()
    assert FAILURES.keys() == {step for way in WAYS.values() for step in way.walked} | {"adopt"}


@pytest.mark.parametrize(
    ("way", "part"),
    [
        *(pytest.param(way, "a share", marks=() if way in QUICK else pytest.mark.slow) for way in WAYS),
        *(pytest.param(way, "all", marks=[pytest.mark.slow, pytest.mark.timeout(400)]) for way in WAYS),
    ],
)
async def test_l3_whatever_fails_at_whatever_step_all_is_as_it_was_or_all_is_made(world, moments, way, part):
    found = WAYS[way]
    if os.sched_getaffinity(0) < set(range(found.needs)):
        pytest.skip("needs more cores")
    there = await world(found.memory)
    walk = Walk(there, found, moments)
    await walk.prepare()
    for step in found.walked:
        for manner, inject in (found.manners(step) if part == "all" else share(way, step)).items():
            try:
                await walk.one(inject)
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"{way}, {step}, {manner}: {error}") from error


def share(way: str, step: str) -> dict[str, Manner]:
    """Every failure once, dealt out to the ways that take the step; and before the switch none goes without."""
    ways = [name for name, each in WAYS.items() if step in each.walked and not each.is_one_way]
    if WAYS[way].is_one_way:
        return WAYS[way].manners(step)
    dealt = list(FAILURES[step].items())
    first = ways.index(way)
    own = dealt[first :: len(ways)] or ([dealt[first % len(dealt)]] if step in BEFORE_SWITCH else [])
    return {**dict(own), **WAYS[way].more.get(step, {})}


@pytest.mark.parametrize("is_atomic", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("manner", ADOPT)
async def test_l3_what_waits_at_a_barrier_and_cannot_be_adopted_ends_and_all_is_as_it_was(
    world, moments, manner, is_atomic
):
    there = await world()
    together, alone = WAYS["atomic"].before(there), {"reload": {"max_parallel_loads": 4}, **there.server("one")}
    await reached(there.edit(together), Milestone.SERVING)
    before = await at_rest(there)
    run = Run(there, "a", "b", moments, together)
    held = there.stage.hold("load", role="engine", model="e")
    first = there.edit(WAYS["atomic"].after(there))
    await held.reached()
    await until(lambda: there.unit("a").loading and "a" in there.reconciler._together.newest._turns, "it waits")
    ADOPT[manner](run)
    models = [there.model("a", "b", **LIVE), there.model("c"), there.model("d")]
    newer = {**ATOMIC, **there.server("two")} if is_atomic else alone
    second = await reached(there.edit(document(*models, **newer)))
    held.release()
    await reached(first)
    assert moments.clear() == []
    assert (first.outcome, second.outcome) == ("superseded", "failed")
    await becomes(there, before)


@pytest.mark.parametrize("is_ours", [False, True], ids=["it does not load", "a fault of ours"])
async def test_l3_listeners_and_keys_go_their_own_way_and_the_receipt_of_a_model_that_fails_says_so(
    world, moments, is_ours
):
    there = await world()
    first = document(there.model("a"), **there.server("one"))
    await reached(there.edit(first))
    before = await at_rest(there)
    run = Run(there, "a", "b", moments, first)
    (our_own("load") if is_ours else refused("load", "engine", by="new"))(run)
    second = await reached(there.edit(document(there.model("a", "b"), **there.server("two"))))
    run.end()
    assert (second.outcome, second.models["a"].outcome) == ("partially_applied", "failed")
    assert differences(await at_rest(there), before, "listeners", "access") == []
    two = there.server("two")["server"]
    assert there.sockets.serving.model_dump(exclude_defaults=True)["tls"] == two["tls"]
    assert two["auth"]["keys"][0]["file"] in there.sockets.access.prints
    assert there.sockets.access is there.reconciler._in_force.access
    back = await reached(there.edit(first))
    assert back.outcome == "applied"
    await becomes(there, before)


class Walk:
    """One world, and one failure after the other in it."""

    def __init__(self, world: World, way: Way, moments: Moments) -> None:
        self.world, self.way, self.moments = world, way, moments
        self.before: dict[str, Any] = {}
        self.done: dict[str, Any] = {}
        self.answer: Answer | None = None

    async def prepare(self) -> None:
        """What an undisturbed change makes of it, and that it can be turned back."""
        for first in self.way.first:
            await self._applied(first(self.world))
        if self.way.streams:
            slow = self.world.stage.hold("generate", prompt="slow")
            self.answer = await self.world.submit("a", "slow", 5)
            (await slow.reached()).say("token")
        await self._applied(self.way.before(self.world))
        await until(lambda: "drain" in self.moments.seen or not self.way.streams, "the old one drains")
        await self._is_quiet(self.way.waits if self.way.streams else 0)
        self.before = await at_rest(self.world)
        if self.way.is_one_way:
            return
        self.moments.clear()
        await self._applied(self.way.after(self.world))
        self._end_probation()
        await self._is_quiet()
        seen = [step for step in self.moments.seen if step != "validate"]
        assert (seen if self.way.ordered else sorted(seen)) == (
            list(self.way.steps) if self.way.ordered else sorted(self.way.steps)
        )
        self.done = await at_rest(self.world)
        await self._applied(self.way.before(self.world))
        await becomes(self.world, self.before, "fds", "tasks")
        self.before = await at_rest(self.world)

    async def one(self, inject: Manner) -> None:
        run = Run(self.world, self.way.old, self.way.new, self.moments, self.way.before(self.world))
        self.moments.clear()
        try:
            if (injected := inject(run)) is not None:
                await injected
            receipt = self.world.edit(self.way.after(self.world))
            await reached(receipt, Milestone.SERVING)
            await until(lambda: receipt.has(Milestone.CLOSED) or self.world.unit("a").probation, "it is made")
            if run.ends_probation:
                self._end_probation()
            await reached(receipt)
            for each in run.newer:
                await reached(each, Milestone.SERVING if self.way.streams else Milestone.CLOSED)
            assert self.moments.clear() == [], "the moment never came"
            await until(lambda: all(rule.calls for rule in run.rules), "somebody comes to the point")
            await asyncio.gather(*run.tasks)
        finally:
            run.end()
        await until(lambda: not run.dead & self._pids(), "the dead are buried")
        outcomes = [receipt.outcome, *(each.outcome for each in run.newer)]
        is_made = outcomes == ["applied"]
        if receipt.outcome == "failed" and (run.gives_up or (self.way.is_new and "a" in self.world.house.units)):
            await self._is_quiet(self.way.waits if self.way.streams else 0)
            self._is_given_up()
            await self._applied(self.way.before(self.world))
        said = ["units.a.degraded"] if receipt.outcome == "rolled_back" else []
        await becomes(self.world, self.done if is_made else self.before, *said)
        if is_made or said:
            await self._back()

    def _pids(self) -> set[int]:
        """Of every replica that somebody counts with."""
        generations = [each for unit in self.world.house.units.values() for each in unit.generations]
        return {pid for each in generations for replica in each.everybody for pid in replica.pids.values()}

    def _is_given_up(self) -> None:
        """Nothing of it is left but the word why."""
        now = state(self.world)
        assert self.world.state("a") == "failed"
        assert now["units"]["a"]["trouble"]
        assert now["strays"] == []
        for key in ("ledger", "cores", "replicas"):
            assert [each for each in now[key] if each.startswith("a")] == []

    def _end_probation(self) -> None:
        """Its time is over."""
        unit = self.world.house.units.get("a")
        if unit is not None and unit.probation is not None and not unit.probation.failed:
            unit.end_probation()

    async def _applied(self, text: str) -> None:
        receipt = await reached(self.world.edit(text), Milestone.SERVING)
        assert receipt.outcome in ("applied", "unchanged"), receipt.view()

    async def _is_quiet(self, busy: int = 0) -> None:
        """Nothing goes on but what the test holds."""
        await until(lambda: sum(len(u.reclaims) for u in self.world.house.units.values()) == busy, "all is quiet")

    async def _back(self) -> None:
        await self._applied(self.way.before(self.world))
        await becomes(self.world, self.before)
