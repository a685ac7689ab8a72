"""What can go wrong at each step of a change: the ways in which a test makes it fail.

`FAILURES` has every step there is in the code, and what may happen at it, whichever model changes in whatever way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.live import alive
from support.played.moments import Moments
from support.played.stage import Rule
from support.played.world import World, collect, failure_of, until

from halogend.config.problems import Problem
from halogend.control import reclaim, replica
from halogend.control.answer import Answer
from halogend.control.process import Child
from halogend.control.receipts import Receipt
from halogend.control.worker import Worker

REFUSED = {"code": "HRT-1016", "message": "no memory"}


@dataclass
class Run:
    """One change and what is done to it. `old` and `new` are the files of the generations it is about, `before` the
    document it leads away from. `gives_up`: nothing can be as it was."""

    world: World
    old: str
    new: str
    moments: Moments
    before: str
    rules: list[Rule] = field(default_factory=list)
    newer: list[Receipt] = field(default_factory=list)
    gives_up: bool = False
    ends_probation: bool = True
    undo: list[Callable[[], None]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)

    def order(self, point: str, do: str, role: str, model: str, **more: Any) -> None:
        where = {"role": role, "model": model, **more.pop("where", {})}
        self.rules.append(self.world.stage.order(point, do, times=1, where=where, **more))

    def hold(self, point: str, role: str, model: str) -> None:
        self.rules.append(self.world.stage.hold(point, times=1, role=role, model=model))

    def kill(self, file: str, role: str) -> None:
        """One process of the replica of this file that is on its way out, else of the one that came last."""
        generations = [each for unit in self.world.house.units.values() for each in unit.generations]
        leaving = [replica.pids[role] for each in generations for replica in each.leaving]
        os.kill([*leaving, self.world.stage.at("load", role, file)[-1].pid][0], signal.SIGKILL)

    @property
    def dead(self) -> set[int]:
        """The processes that were told to die."""
        orders = [(rule.order or {}, rule.calls) for rule in self.rules]
        return {call.pid for order, calls in orders if order.get("do") == "die" for call in calls}

    def old_ones(self, role: str) -> set[int]:
        """The processes that serve and that the change is to end."""
        return {call.pid for call in self.world.stage.at("ready", role, self.old) if alive(call.pid)}

    def meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        """The change is over when this is."""
        self.tasks.append(asyncio.create_task(work))

    def revert(self) -> None:
        self.newer.append(self.world.edit(self.before))

    def end(self) -> None:
        """Nothing is in the way any more."""
        self.patch.undo()
        for each in self.undo:
            each()
        for rule in self.rules:
            rule.release()


Manner = Callable[[Run], Awaitable[None] | None]


def refused(point: str, role: str, *, by: str, **where: Any) -> Manner:
    def inject(run: Run) -> None:
        run.order(point, "fail", role, getattr(run, by), **REFUSED, where=where)

    return inject


def dies(point: str, role: str, *, by: str, **where: Any) -> Manner:
    def inject(run: Run) -> None:
        run.order(point, "die", role, getattr(run, by), signal=signal.SIGKILL, where=where)

    return inject


def silent(point: str, role: str, *, by: str) -> Manner:
    return lambda run: run.hold(point, role, getattr(run, by))


def killed(step: str, phase: str, role: str, *, of: str) -> Manner:
    return lambda run: run.moments.on(step, phase, lambda: run.kill(getattr(run, of), role))


def newer(step: str, phase: str = "began") -> Manner:
    return lambda run: run.moments.on(step, phase, run.revert)


def fails() -> None:
    raise RuntimeError("a fault of our own")


def our_own(step: str, phase: str = "began", *, after: Manner = lambda run: None) -> Manner:
    """A fault of ours, as a step begins or when it is done. `after`: what brings the change there."""

    def inject(run: Run) -> None:
        after(run)
        run.moments.on(step, phase, fails)

    return inject


def no_program(run: Run) -> None:
    """Once: what is started again afterwards comes up."""
    left = ["/nowhere/python"]
    start = Worker.start

    async def started(*args: Any) -> Worker:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "executable", left.pop() if left else sys.executable)
            return await start(*args)

    run.moments.on("load", "began", lambda: run.patch.setattr(Worker, "start", started))


def does_not_come_back(run: Run) -> None:
    """Neither the new one nor the old one after it."""
    for file in (run.new, run.old):
        run.order("load", "fail", "engine", file, **REFUSED)
    run.gives_up = True


def comes_back_late(run: Run) -> None:
    """The new one fails, and so does the old one when it is started again; then it comes."""
    run.moments.on("load", "done", lambda: run.order("load", "fail", "engine", run.new, **REFUSED))
    run.moments.on("roll_back", "began", lambda: run.order("load", "fail", "engine", run.old, **REFUSED))


def does_not_load(run: Run) -> None:
    run.order("load", "fail", "engine", run.new, **REFUSED)


def second_does_not_load(run: Run) -> None:
    """The first replica does."""
    run.moments.on("load", "done", lambda: does_not_load(run))


def does_not_grow_again(run: Run) -> None:
    """The new one fails, and the old one will not have its pool back, at first."""
    does_not_load(run)
    run.moments.on("grow", "began", lambda: run.order("prepare", "fail", "engine", run.old, **REFUSED))


def never_tells_that_it_grew(run: Run) -> None:
    does_not_load(run)
    run.moments.on("grow", "began", lambda: run.hold("commit", "engine", run.old))


def dies_as_it_grows(run: Run) -> None:
    does_not_load(run)
    run.moments.on("grow", "began", lambda: run.kill(run.old, "engine"))


async def over_its_deadline(run: Run) -> None:
    """Every replica has a request that never ends."""
    run.patch.setattr(reclaim, "_DRAIN_LEAST_S", 0.05)
    hold = run.world.stage.hold("generate", prompt="late")
    answers: list[Answer] = []
    for number in (1, 2):
        answers.append(await run.world.submit("a", "late", 5))
        (await hold.reached(number)).say("token")
        await until(lambda: answers[-1].has_token, "its first token")

    async def are_told() -> None:
        ends = [asyncio.create_task(collect(answer)) for answer in answers]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        hold.release("finish")  # where a replica stays
        told = [failure_of(events) for events in await asyncio.gather(*ends)]
        assert "draining" in told
        assert set(told) <= {"draining", None}

    run.meanwhile(are_told())


def deaf(role: str) -> Manner:
    """It hears neither that it is to stop nor that anybody else has gone."""

    async def inject(run: Run) -> None:
        pids = run.old_ones(role)
        for call in run.world.stage.at("ready", role, run.old):
            call.say("deafen")
        await until(lambda: pids <= {call.pid for call in run.world.stage.at("deaf", role, run.old)}, "it is deaf")

    return inject


def deaf_newcomer(run: Run) -> None:
    """It loads for ever and hears no Stop; then nobody wants it."""
    run.order("load", "deafen", "engine", run.new)

    async def unwanted() -> None:
        await until(lambda: run.rules[-1].calls, "it loads")
        run.revert()

    run.meanwhile(unwanted())


def unkillable(run: Run) -> None:
    """It waits for a disk that never answers, as far as that can be had: stopped, and no kill reaches it."""
    run.patch.setattr(replica, "_STOP_GRACE_S", 0.05)
    run.patch.setattr(replica, "_KILLED_S", 0.5)
    stuck = run.old_ones("engine")
    kill = Child.kill
    run.patch.setattr(Child, "kill", lambda child: None if child.pid in stuck else kill(child))

    def let_go() -> None:
        for pid in stuck:
            os.kill(pid, signal.SIGKILL)

    run.undo.append(let_go)
    run.moments.on("reclaim", "began", lambda: [os.kill(pid, signal.SIGSTOP) for pid in stuck])


def other_files(run: Run) -> None:
    """They are put there after the document was planned with."""
    path = run.world.folder / f"{run.new}.gguf"
    then = path.stat()
    run.moments.on("load", "began", lambda: os.utime(path, ns=(1, 1)))
    run.undo.append(lambda: os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns)))


def moved(name: str, instead: str | None = None) -> Manner:
    """The file is somewhere else, and where it was is another, or none."""

    def inject(run: Run) -> None:
        run.world.server("two")
        path = run.world.folder / name
        aside = path.with_name("aside")
        path.rename(aside)
        run.undo.append(lambda: aside.replace(path))
        if instead is not None:
            path.write_bytes((run.world.folder / instead).read_bytes())
            path.chmod(0o600)

    return inject


def on_probation(role: str) -> Manner:
    """Its new generation dies."""

    def inject(run: Run) -> None:
        run.ends_probation = False
        run.moments.on("probation", "began", lambda: run.kill(run.new, role))

    return inject


def fault_on_the_way_back(phase: str) -> Manner:
    """Its new generation dies, and the switch back is not made at once."""

    def inject(run: Run) -> None:
        run.ends_probation = False

        def ends() -> None:
            run.kill(run.new, "engine")
            run.moments.on("switch", phase, fails)

        run.moments.on("probation", "began", ends)

    return inject


def too_many_errors(run: Run) -> None:
    run.ends_probation = False

    def end() -> None:
        number = run.world.unit("a").serving.number
        for _ in range(2):
            run.world.router.record_end("a", number, is_error=True)

    run.moments.on("probation", "began", end)


def busy(step: str) -> Manner:
    problem = Problem("HRT-1008", "the port is taken", path="server.port")
    return lambda run: run.patch.setattr(run.world.sockets, f"refuse_{step}", problem)


def prepares(step: str, *, by: str) -> dict[str, Manner]:
    """Everything that may go wrong while workers of the generation of `by` prepare."""
    return {
        "the engine refuses": refused("prepare", "engine", by=by),
        "the engine never answers": silent("prepare", "engine", by=by),
        "the engine dies of it": dies("prepare", "engine", by=by),
        "a newer document": newer(step),
        "a fault of ours": our_own(step),
    }


FAILURES: dict[str, dict[str, Manner]] = {
    "validate": {
        "the port is taken": busy("prepare"),
        "the port was taken meanwhile": busy("commit"),
        "a fault of ours": our_own("validate"),
    },
    "update": {"a newer document": newer("update"), "a fault of ours": our_own("update")},
    "take_back": {"a newer document": newer("take_back"), "a fault of ours": our_own("take_back")},
    "shrink": {
        **prepares("shrink", by="old"),
        "it is never confirmed": silent("commit", "engine", by="old"),
        "the old engine dies": killed("shrink", "began", "engine", of="old"),
    },
    "load": {
        "no program": no_program,
        "the engine refuses": refused("load", "engine", by="new"),
        "the engine dies": dies("load", "engine", by="new"),
        "its text process dies at the first token": dies("submit", "text", by="new"),
        "other files": other_files,
        "a newer document": newer("load"),
        "a newer document at its end": newer("load", "done"),
        "it hears no Stop": deaf_newcomer,
        "a fault of ours": our_own("load"),
        "a fault of ours at its end": our_own("load", "done"),
    },
    "grow": {
        "the old engine refuses": does_not_grow_again,
        "the old engine never confirms": never_tells_that_it_grew,
        "the old engine dies": dies_as_it_grows,
        "a fault of ours": our_own("grow", after=does_not_load),
        "a fault of ours at its end": our_own("grow", "done", after=does_not_load),
    },
    "adopt": {},  # has a test of its own: two documents
    "roll_back": {
        "the old one does not come back at once": comes_back_late,
        "a fault of ours": our_own("roll_back", after=second_does_not_load),
        "a fault of ours at its end": our_own("roll_back", "done", after=second_does_not_load),
    },
    "switch": {
        "the new engine dies before": killed("switch", "began", "engine", of="new"),
        "the new text process dies after": killed("switch", "done", "text", of="new"),
        "a newer document": newer("switch", "done"),
        "a fault of ours": our_own("switch"),
        "a fault of ours at its end": our_own("switch", "done"),
    },
    "probation": {
        "the new text process dies": on_probation("text"),
        "too many errors": too_many_errors,
        "a fault of ours on the way back": fault_on_the_way_back("began"),
        "a fault of ours when it is back": fault_on_the_way_back("done"),
        "a newer document": newer("probation"),
        "a fault of ours": our_own("probation"),
    },
    "drain": {
        "the old engine dies": killed("drain", "began", "engine", of="old"),
        "a newer document": newer("drain"),
        "it is over its deadline": over_its_deadline,
        "a fault of ours": our_own("drain"),
    },
    "reclaim": {
        "the old text process dies": killed("reclaim", "began", "text", of="old"),
        "a newer document": newer("reclaim"),
        "the old engine hears no Stop": deaf("engine"),
        "the old text process hears no Stop": deaf("text"),
        "no kill ends the old engine": unkillable,
        "a fault of ours": our_own("reclaim"),
    },
}
