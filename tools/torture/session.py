"""One run: start, the tiny models' phase, the real ones', end, the odd answers' judgement. Owns the order and the time
of everything."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torture.acts import Acts
from torture.client import Client
from torture.daemon import Daemon
from torture.document import Checkpoint, Wish
from torture.evidence import Count, Evidence, Goal
from torture.load import LoadProcess
from torture.machine import Cores, free_ports
from torture.messages import Closed, End, Open, Ports
from torture.models import TINY
from torture.mount import Mount
from torture.odd import judge
from torture.processes import descendants, is_alive
from torture.prompts import PROMPTS
from torture.schedule import Act, capacity_of, dealt
from torture.stage import LOOK_S, Fault, Stage
from torture.watch import Keeper, Memory, servings_of, turn_policies

SHARE = 0.6  # of capacity
CLIENTS = 8  # that measure it
TINY_SHARE, REAL_SHARE = 0.5, 0.4  # of the time; the rest is start and end
QUIET_LEAST_S = 1.0
FLAT_S = 15.0


@dataclass(frozen=True, slots=True)
class Options:
    """`real` are the two models of the second phase, or none, `precision` what they are served in. `generations`
    and `swaps` are what is made in any case, also when it takes longer than `seconds`."""

    folder: Path
    seconds: float
    generations: int
    swaps: int
    real: tuple[Path, ...]
    precision: str
    seed: int
    say: Callable[[str], None]


async def torture(options: Options) -> Evidence:
    """A run that breaks off is a fault among the others; so is one that is cancelled, which reports what was seen."""
    cores, evidence = Cores.present(), Evidence()
    evidence.machine = {"daemon_cores": sorted(cores.daemon), "load_cores": sorted(cores.load)}
    tiny = [Checkpoint(path, "tiny", "fp32", "2MiB") for path in await asyncio.to_thread(_write_tiny, options.folder)]
    real = [Checkpoint(path, path.name.partition(".")[0], options.precision, "24MiB") for path in options.real]
    ports = free_ports(2)
    wish = Wish(tiny[0], ports[0])
    mount = Mount(options.folder / "mount", wish.text())
    daemon = Daemon(options.folder, mount.path, cores.daemon)
    try:
        load = await LoadProcess.start(options.seed, cores.load)
        try:
            run = _Run(options, Stage(daemon, mount, load, evidence, wish), ports)
            await run.all(tiny, real)
        except (Fault, OSError) as error:
            evidence.faults.append(f"the run broke off: {type(error).__name__}: {error}\n{daemon.log_tail()}")
        except asyncio.CancelledError:
            evidence.faults.append("the run was interrupted")
        finally:
            await load.stop()
            evidence.asked += load.asked
    finally:
        left = descendants(daemon.pid)
        status = await daemon.stop()
    _judge_end(evidence, status, left)
    await judge(evidence, [Wish(each, wish.port) for each in real if not each.is_exact], options.say)
    evidence.servings = servings_of(evidence, [*tiny, *real], tiny[0])
    return evidence


def _judge_end(evidence: Evidence, status: int, left: list[int]) -> None:
    if status != 0:
        evidence.faults.append(f"the daemon ended with {status}")
    if orphans := [pid for pid in left if is_alive(pid)]:
        evidence.faults.append(f"processes are left behind: {orphans}")


class _Run:
    """The phases against one daemon."""

    def __init__(self, options: Options, stage: Stage, ports: tuple[int, ...]) -> None:
        self._options = options
        self._stage = stage
        self._memory = Memory(stage.daemon.pid)
        self._keeper = Keeper(stage)
        self._acts = Acts(stage, self._memory, ports, options.folder)
        self._measure_s = min(20.0, max(3.0, options.seconds / 60))

    async def all(self, tiny: list[Checkpoint], real: list[Checkpoint]) -> None:
        stage, options = self._stage, self._options
        await stage.until(self._answers, "the daemon answers")
        await stage.until_settled("the first generation")
        stage.load.order(Ports(ports=(stage.wish.port,)))
        await self._learn()
        await stage.until_spare()
        stage.evidence.before = stage.count()
        async with self._beside():
            if options.generations:
                made = await self._phase(tiny, options.generations, options.seconds * TINY_SHARE, self._tiny_deck())
                stage.evidence.goals.append(Goal("tiny generations", options.generations, made))
            if real:
                made = await self._phase(real, options.swaps, options.seconds * REAL_SHARE, self._real_deck())
                stage.evidence.goals.append(Goal("swaps of the real models", options.swaps, made))
                await self._acts.do("swaps at rest", partial(self._acts.swap, tiny[0]))
        await self._finish()

    async def _answers(self) -> bool:
        try:
            return bool(await self._stage.status())
        except OSError:
            return False

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        """What goes on all the time. One that breaks off is a fault of its own."""
        works = {
            "policy swaps": turn_policies(self._stage),
            "receipts": self._keeper.run(),
            "memory": self._memory.run(),
        }
        tasks = {name: asyncio.create_task(work) for name, work in works.items()}
        try:
            yield
        finally:
            for task in tasks.values():
                task.cancel()
            ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
            for name, end in zip(tasks, ends, strict=True):
                if isinstance(end, Exception):
                    self._stage.evidence.faults.append(f"{name} broke off: {type(end).__name__}: {end}")

    async def _phase(self, pair: list[Checkpoint], swaps: int, seconds: float, deck: list[Act]) -> int:
        """Learns what both answer and how fast, then swaps and acts in turn, with quiet between them. How many
        swaps were made."""
        stage, kind, made = self._stage, pair[0].kind, 0
        rates = {each.kind: await self._meet(each) for each in pair}
        if not all(rates.values()):
            return made
        capacity = min(rates.values())
        stage.evidence.rates |= {name: (rate, SHARE * capacity) for name, rate in rates.items()}
        self._options.say(f"{kind}: capacity {capacity:.1f} requests/s, load {SHARE * capacity:.1f}")
        stage.load.order(Open(rate=SHARE * capacity))
        await asyncio.sleep(self._measure_s)
        began_at = stage.clock.now()
        for number, acts in enumerate(dealt(deck, swaps), 1):
            made += await self._acts.do("swaps", partial(self._acts.swap, self._other(pair)))
            for name, act in acts:
                await self._acts.do(name, partial(act, self._other(pair)))
            self._options.say(f"{kind}: {number} of {swaps} swaps, {len(stage.load.asked)} requests")
            slot_ends_at = began_at + number * seconds / swaps
            await asyncio.sleep(max(QUIET_LEAST_S, slot_ends_at - stage.clock.now()))
        await stage.load.rest()
        return made

    async def _meet(self, checkpoint: Checkpoint) -> float:
        """Serves it, without load, learns its answers, and measures requests a second; 0 where it does not serve."""
        stage = self._stage
        if stage.wish.checkpoint != checkpoint:
            if not await self._acts.do("swaps at rest", partial(self._acts.swap, checkpoint)):
                return 0.0
            await self._learn()
        began_at, before = stage.clock.now(), len(stage.load.asked)
        stage.load.order(Closed(clients=CLIENTS))
        await asyncio.sleep(self._measure_s)
        ended_at = stage.clock.now()
        await stage.load.rest()
        return capacity_of(stage.load.asked[before:], began_at, ended_at)

    async def _learn(self) -> None:
        """Each prompt's answer, asked alone."""
        evidence, client = self._stage.evidence, Client(self._stage.clock, (self._stage.wish.port,))
        asked = [await client.ask(prompt) for prompt in range(len(PROMPTS))]
        evidence.asked += asked
        for each in asked:
            if each.end is End.ANSWERED:
                evidence.answers.setdefault(each.prompt, set()).add(each.text)

    def _other(self, pair: list[Checkpoint]) -> Checkpoint:
        return next(each for each in pair if each != self._stage.wish.checkpoint)

    def _tiny_deck(self) -> list[Act]:
        acts = self._acts
        return [
            ("bad documents", acts.bad_documents),
            ("moves of the port", acts.move),
            ("kills of what serves", acts.kill_serving),
            ("signal storms", acts.signal_storm),
            ("ten contents a second", acts.ten_contents),
            ("torn weights", acts.torn_weights),
            ("weights torn while loading", acts.torn_while_loading),
            ("kills of what loads", acts.kill_loading),
            ("ways back", acts.take_back),
            ("questions by command", acts.ask_by_command),
            ("empty documents", acts.empty_document),
        ]

    def _real_deck(self) -> list[Act]:
        acts = self._acts
        return [
            ("ways back", acts.take_back),
            ("kills of what serves", acts.kill_serving),
            ("moves of the port", acts.move),
        ]

    async def _finish(self) -> None:
        """At rest: every receipt is closed, the daemon is what its document asks for, and no larger than before."""
        stage = self._stage
        await stage.until_settled("the last generation")
        await stage.until(self._keeper.look, "every receipt is closed")
        await self._acts.do("questions by command", partial(self._acts.ask_by_command, stage.wish.checkpoint))
        await self._keeper.look()
        await stage.until_spare()
        stage.evidence.after = await self._count_when_flat()

    async def _count_when_flat(self) -> Count:
        """What is being closed gets a moment."""
        stage, before = self._stage, self._stage.evidence.before
        deadline = stage.clock.now() + FLAT_S
        while True:
            after = stage.count()
            is_flat = before and (after.processes, after.descriptors) <= (before.processes, before.descriptors)
            if is_flat or stage.clock.now() > deadline:
                return after
            await asyncio.sleep(LOOK_S)


def _write_tiny(folder: Path) -> list[Path]:
    subprocess.run([sys.executable, "-m", "torture.models", str(folder)], check=True)
    return [folder / f"{name}.gguf" for name in TINY]
