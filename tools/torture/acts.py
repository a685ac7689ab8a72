"""What is done to the daemon, and what must come of it. Each act leaves the document as `wish` has it.

An act raises Fault for what the daemon did wrong; requests are judged by their clients' records.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torture.document import Checkpoint
from torture.evidence import Window
from torture.messages import Ports
from torture.prompts import MODEL
from torture.stage import Fault, Stage
from torture.watch import Memory
from torture.windows import KILL

ACT = "act"
SIGNALS, SIGNAL_EVERY_S = 25, 0.04
CONTENTS, CONTENT_EVERY_S = 10, 0.1
_CATCH_UP_S = 2.0  # for those that waited for an engine to be served
_EMPTY_S = 1.5
_GOOD = frozenset({"applied", "unchanged", "superseded"})  # a change of policy may take another change along


class Acts:
    """`others` are the checkpoints to swap with, `ports` those to move between, `folder` for torn files."""

    def __init__(self, stage: Stage, memory: Memory, ports: tuple[int, ...], folder: Path) -> None:
        self._stage = stage
        self._memory = memory
        self._ports = ports
        self._folder = folder

    async def do(self, name: str, act: Callable[[], Awaitable[None]]) -> bool:
        """Counts it, marks its time, and takes a fault down. True when all was well."""
        evidence = self._stage.evidence
        evidence.acts[name] = evidence.acts.get(name, 0) + 1
        with self._stage.window(ACT):
            try:
                await act()
            except (Fault, OSError, KeyError, TypeError) as error:  # no answer, or one of another shape
                evidence.faults.append(f"{name}: {type(error).__name__}: {error}")
                return False
        return True

    # --- swaps ------------------------------------------------------------------------------------

    async def swap(self, checkpoint: Checkpoint) -> None:
        """A new generation, until the old one's memory is back."""
        stage, was = self._stage, self._stage.wish.checkpoint
        before = (await stage.model())["serving"]["generation"]
        plan = await stage.plan(replace(stage.wish, checkpoint=checkpoint).text())
        self._memory.begin()
        receipt = await stage.receipt(await stage.edit(checkpoint=checkpoint), "serving")
        if receipt["outcome"] not in _GOOD:
            await stage.edit(checkpoint=was)
            raise Fault(f"{receipt['id']} is {receipt['outcome']}: {_reasons(receipt)}")
        await stage.receipt(receipt["id"], "closed")  # looking again and again would be load for what drains
        await stage.until_settled(f"a swap to {checkpoint.path.name}", before)
        change = f"{before} -> {checkpoint.path.name}"
        stage.evidence.peaks.append(self._memory.peak(change, plan))

    async def take_back(self, checkpoint: Checkpoint) -> None:
        """Another checkpoint, and back as soon as it serves."""
        stage, back = self._stage, self._stage.wish.checkpoint
        before = (await stage.model())["serving"]["generation"]
        await stage.edit(checkpoint=checkpoint)

        async def serves_the_other() -> bool:
            serving = (await stage.model())["serving"]
            return bool(serving) and serving["path"] == str(checkpoint.path)

        await stage.until(serves_the_other, f"{checkpoint.path.name} serves")
        await stage.edit(checkpoint=back)
        model = await stage.until_settled(f"the way back to {back.path.name}")
        stage.evidence.taken_back += model["serving"]["generation"] == before

    # --- documents that are no good -----------------------------------------------------------------

    async def bad_documents(self, _other: Checkpoint) -> None:
        """Each is rejected with a code and, where it is in the text, a place; the next good one applies."""
        wish = self._stage.wish
        absent = replace(wish, checkpoint=replace(wish.checkpoint, path=self._folder / "absent.gguf"))
        for text in ("models: [", wish.text(max_batchh=3), absent.text(), wish.text(max_batch="many")):
            await self._refused(text, ("rejected",))

    async def torn_weights(self, _other: Checkpoint) -> None:
        """A file that ends behind its header."""
        torn = self._torn()
        os.truncate(torn.path, torn.path.stat().st_size // 2)
        await self._refused(replace(self._stage.wish, checkpoint=torn).text(), ("rejected",))

    async def torn_while_loading(self, _other: Checkpoint) -> None:
        """A file that loses its end after it was planned with."""
        torn = self._torn()

        def tear(_loading: dict[str, Any]) -> None:
            os.truncate(torn.path, torn.path.stat().st_size // 2)

        await self._refused(replace(self._stage.wish, checkpoint=torn).text(), ("failed",), tear)

    async def kill_loading(self, checkpoint: Checkpoint) -> None:
        """`kill -9` of an engine that has not served yet."""

        def kill(loading: dict[str, Any]) -> None:
            os.kill(loading["pids"]["engine"], signal.SIGKILL)

        await self._refused(replace(self._stage.wish, checkpoint=checkpoint).text(), ("failed",), kill)

    async def empty_document(self, _other: Checkpoint) -> None:
        """An empty file is no wish."""
        stage = self._stage
        async with stage.lock:
            before = await stage.newest()
            stage.mount.write("")
            await asyncio.sleep(_EMPTY_S)
            stage.mount.write(stage.wish.text())
            await asyncio.sleep(_EMPTY_S)
            receipts = [await stage.receipt(f"r{each}") for each in range(before + 1, await stage.newest() + 1)]
            if wrong := [each["outcome"] for each in receipts if each["outcome"] != "unchanged"]:
                raise Fault(f"an empty file was taken for a document: {wrong}")

    async def _refused(
        self, text: str, outcomes: tuple[str, ...], harm: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        """The document ends so, and what served serves on. `harm` is done as soon as something loads."""
        stage = self._stage
        async with stage.lock:
            before = (await stage.model())["serving"]
            try:
                receipt_id = await stage.publish(text)
                if harm is not None:
                    harm(await stage.until(self._loading, "a load begins"))
                receipt = await stage.receipt(receipt_id, "closed")
            finally:
                good = await stage.receipt(await stage.publish(stage.wish.text()), "closed")
            after = (await stage.model())["serving"]
        if receipt["outcome"] not in outcomes:
            raise Fault(f"{receipt_id} is {receipt['outcome']}, not {' or '.join(outcomes)}: {text[:200]}")
        if not _reasons(receipt):
            raise Fault(f"{receipt_id} is {receipt['outcome']} and does not say why")
        if good["outcome"] not in ("applied", "unchanged"):
            raise Fault(f"the good document after it, {good['id']}, is {good['outcome']}: {_reasons(good)}")
        if after is None or after["generation"] != before["generation"]:
            raise Fault(f"{receipt_id} changed what serves: {before} -> {after}")

    async def _loading(self) -> dict[str, Any] | None:
        loading = (await self._stage.model())["loading"]
        return loading if loading and "engine" in loading["pids"] else None

    def _torn(self) -> Checkpoint:
        """A copy of what serves, to be harmed."""
        whole = self._stage.wish.checkpoint
        path = self._folder / "torn.gguf"
        path.unlink(missing_ok=True)
        path.write_bytes(whole.path.read_bytes())
        return replace(whole, path=path)

    # --- triggers -----------------------------------------------------------------------------------

    async def signal_storm(self, _other: Checkpoint) -> None:
        """An edit among signals: the newest content is what is active, and nothing was loaded for it."""
        stage = self._stage

        async def storm() -> None:
            stage.mount.write(stage.wish.text())
            for _ in range(SIGNALS):
                stage.daemon.signal(signal.SIGHUP)
                await asyncio.sleep(SIGNAL_EVERY_S)

        await self._newest_wins(storm, 1)

    async def ten_contents(self, _other: Checkpoint) -> None:
        """Ten contents within a second, each with a call that asks for it (L1)."""
        stage = self._stage
        calls: list[asyncio.Task[tuple[int, dict[str, Any]]]] = []
        answers: list[tuple[int, dict[str, Any]]] = []

        async def edits() -> None:
            first = stage.wish.policy - CONTENTS
            for number in range(1, CONTENTS + 1):
                stage.mount.write(replace(stage.wish, policy=first + number).text())
                calls.append(asyncio.create_task(stage.daemon.call("POST", "/reload?wait=serving")))
                await asyncio.sleep(CONTENT_EVERY_S)
            answers.extend(await asyncio.gather(*calls))

        await self._newest_wins(edits, CONTENTS)
        outcomes = [receipt["outcome"] for _, receipt in answers]
        if unknown := set(outcomes) - _GOOD:
            raise Fault(f"good documents ended {unknown}")

    async def _newest_wins(self, work: Callable[[], Awaitable[None]], policies: int) -> None:
        stage = self._stage
        async with stage.lock:
            before, first = (await stage.model())["serving"]["generation"], await stage.newest() + 1
            stage.wish = replace(stage.wish, policy=stage.wish.policy + policies)
            revision = (await stage.plan(stage.wish.text()))["revision"]["planned"]
            await work()

            async def is_active() -> bool:
                return bool((await stage.status())["revision"]["active"] == revision)

            async def are_decided() -> bool:
                receipts = [await stage.receipt(f"r{each}") for each in range(first, await stage.newest() + 1)]
                return all(each["outcome"] for each in receipts)

            await stage.until(is_active, "the newest content is active", 60.0)
            await stage.until(are_decided, "every trigger is answered", 60.0)  # one that waits would take the next edit
            after = (await stage.model())["serving"]["generation"]
        if after != before:
            raise Fault(f"a change of policy loaded generation {after}")

    async def ask_by_command(self, _other: Checkpoint) -> None:
        """Nothing changed: reload, plan and status say so, by their exit status too."""
        stage = self._stage
        async with stage.lock:
            for words, wanted in ((("reload",), 0), (("plan",), 0), (("status",), 0)):
                status, said = await stage.daemon.command(*words)
                if status != wanted:
                    raise Fault(f"halogend {words[0]} ended with {status}: {str(said)[:400]}")

    async def move(self, _other: Checkpoint) -> None:
        """The listener goes to another port; clients that come to the old one find the new one."""
        stage, old = self._stage, self._stage.wish.port
        new = next(port for port in self._ports if port != old)
        stage.load.order(Ports(ports=(old, new)))
        receipt = await stage.receipt(await stage.edit(port=new), "serving")
        stage.load.order(Ports(ports=(new,)))
        if receipt["outcome"] not in _GOOD:
            raise Fault(f"a free port: {receipt['outcome']}: {_reasons(receipt)}")

    # --- deaths -------------------------------------------------------------------------------------

    async def kill_serving(self, _other: Checkpoint) -> None:
        """`kill -9` of the engine that serves; another takes its place."""
        stage = self._stage
        serving = (await stage.model())["serving"]
        began_at = stage.clock.now()
        os.kill(serving["pids"]["engine"], signal.SIGKILL)
        try:
            await stage.until_settled("a killed engine comes back", serving["generation"])
            await asyncio.sleep(_CATCH_UP_S)
        finally:
            stage.evidence.windows.append(Window(KILL, began_at, stage.clock.now()))


def _reasons(receipt: dict[str, Any]) -> str:
    """What it says went wrong."""
    found = [f"{each['code']}: {each['message']}" for each in receipt["problems"]]
    found += [str(each["error"]) for each in receipt["models"] if each["error"] and each["model"] == MODEL]
    return "; ".join(found)
