"""A reconciler with everything real around it but the inside of its processes and its listeners."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from support import gguf_files
from support.live import alive
from support.played.stage import PATIENCE_S, Stage
from support.tls_files import make_pair

from halogend.config.facts import DeviceFacts
from halogend.config.problems import Problem
from halogend.config.schema import ServerConfig
from halogend.control.acceptance import Source
from halogend.control.access import Access
from halogend.control.answer import Answer
from halogend.control.cores import Cores
from halogend.control.history import History
from halogend.control.house import House
from halogend.control.ledger import Ledger
from halogend.control.machine import Machine
from halogend.control.process import Host
from halogend.control.receipts import Milestone, Receipt
from halogend.control.reconciler import Reconciler
from halogend.control.requests import InferenceRequest, RequestError
from halogend.control.router import Router
from halogend.control.source import Content, SourceError
from halogend.control.state_dir import StateDir
from halogend.control.status import status
from halogend.control.steering import Steering
from halogend.control.unit import Unit
from halogend.obs.metrics import Metrics
from halogend.wire.requests import Finished, TextEvent, TextPrompt

_TESTS = Path(__file__).parent.parent.parent
GIB = 1 << 30
T = TypeVar("T")


@dataclass(frozen=True)
class PlayedHost(Host):
    """Children are played; `more` goes into their environment."""

    package: str = "support.played"
    more: Mapping[str, str] = field(default_factory=dict)

    def child_environ(self, threads: int) -> dict[str, str]:
        ours = os.pathsep.join((str(_TESTS), str(_TESTS.parent)))  # of this checkout, whichever is installed
        return {**super().child_environ(threads), "PYTHONPATH": ours, **self.more}


class PlayedSockets:
    """Listeners that may refuse. `serving` is what was committed, with the keys and certificates `access`; `pause`
    holds a commit."""

    def __init__(self) -> None:
        self.refuse_prepare: Problem | None = None
        self.refuse_commit: Problem | None = None
        self.serving: ServerConfig | None = None
        self.bound: ServerConfig | None = None
        self.access = self.bound_access = Access()
        self.in_commit = asyncio.Event()
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    async def prepare(self, server: ServerConfig, access: Access) -> Problem | None:
        if self.refuse_prepare is None:
            self.bound, self.bound_access = server, access
        return self.refuse_prepare

    async def commit(self) -> Problem | None:
        self.in_commit.set()
        await self.may_commit.wait()
        if self.refuse_commit is None:
            self.serving, self.access = self.bound, self.bound_access
        self.bound = None
        return self.refuse_commit

    async def discard(self) -> None:
        self.bound = None


def document(*models: dict[str, Any], **top: Any) -> str:
    """Full form. `models` from `World.model`."""
    empty = {} if models else {"allow_empty": True}
    return yaml.safe_dump({"apiVersion": "halogen.dev/v1alpha1", "models": list(models), **empty, **top})


class World:
    """`text` is what the source holds; None: it cannot be read. `state` is where history is kept; `accelerators` are
    there beside the host."""

    def __init__(
        self,
        folder: Path,
        memory_bytes: int,
        state: Path | None = None,
        accelerators: tuple[DeviceFacts, ...] = (),
    ) -> None:
        self.folder = folder
        self.stage = Stage(folder / "stage")
        self.sockets = PlayedSockets()
        self.text: str | None = ""
        self.log = io.BytesIO()
        metrics = Metrics("1")
        self.router = Router(on_waiting=metrics.waiting_in_router)
        self.house = House(
            router=self.router,
            ledger=Ledger(),
            cores=Cores(4),
            host=PlayedHost(environ=os.environ, stderr=self.log, more={"PLAYED_STAGE": str(self.stage.path)}),
            metrics=metrics,
        )
        device = DeviceFacts(id="cpu:0", memory_bytes=memory_bytes, aliases=("cpu",))
        source = Source("config.yaml", {}, self._read)
        history = History(None if state is None else StateDir.open(state))
        machine = Machine(4, False, (device, *accelerators))
        self.reconciler = Reconciler(self.house, machine, self.sockets, source, history)
        self.steering = Steering(self.reconciler, state)
        self.is_stopped = False

    # --- documents --------------------------------------------------------------------------------

    def model(self, name: str, file: str | None = None, **fields: Any) -> dict[str, Any]:
        """One entry of `models`; `file` is the stem of its checkpoint, written where it is not there."""
        path = self.folder / f"{file or name}.gguf"
        if not path.exists():
            path.write_bytes(_checkpoint(self.folder))
        return {"name": name, "model": str(path), "kv_cache_bytes": "1MiB", **fields}

    def server(self, name: str) -> dict[str, Any]:
        """A `server` with a key and a certificate of this name, which are made the first time."""
        key, pair = self.folder / f"{name}.api-key", self.folder / name
        if not pair.exists():
            key.write_text(f"{name}-{'0' * 32}")
            key.chmod(0o600)
            pair.mkdir()
            make_pair(pair)
        keys = [{"name": "k", "file": str(key), "scopes": ["infer"]}]
        tls = {"cert": str(pair / "server.pem"), "key": str(pair / "server.key")}
        return {"server": {"auth": {"keys": keys}, "tls": tls}}

    def edit(self, text: str, trigger: str = "api") -> Receipt:
        self.text = text
        return self.reconciler.reload(trigger, "test")

    async def apply(self, *models: dict[str, Any], until: Milestone = Milestone.CLOSED, **top: Any) -> Receipt:
        receipt = self.edit(document(*models, **top))
        await reached(receipt, until)
        return receipt

    # --- requests -----------------------------------------------------------------------------------

    async def submit(self, model: str, prompt: str = "hi", max_tokens: int = 1) -> Answer:
        request = InferenceRequest(model=model, prompt=TextPrompt(text=prompt), max_tokens=max_tokens)
        return await self.router.submit(request)

    async def ask(self, model: str, prompt: str = "hi", max_tokens: int = 1) -> list[TextEvent]:
        """All events of a request."""
        return await collect(await self.submit(model, prompt, max_tokens))

    def asks(self, model: str, prompt: str = "hi") -> asyncio.Task[list[TextEvent] | str]:
        """The same in a task of its own; a refusal's code where there are no events."""

        async def asked() -> list[TextEvent] | str:
            try:
                return await self.ask(model, prompt)
            except RequestError as error:
                return error.code

        return asyncio.create_task(asked())

    @staticmethod
    def spawned(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.create_task(work)

    # --- views --------------------------------------------------------------------------------------

    def unit(self, name: str) -> Unit:
        return self.house.units[name]

    def status(self) -> dict[str, Any]:
        return {**status(self.reconciler, "1", 0.0), **self.steering.view()}

    def state(self, name: str) -> str:
        return self.status()["models"][name]["state"]

    def children(self) -> set[int]:
        return {pid for pid in self.stage.pids if alive(pid)}

    def series(self, *names: str) -> set[str]:
        """The lines of these metrics that are not 0."""
        prefixes = tuple(f"halogen_{name}" for name in names)
        lines = self.house.metrics.render().decode().splitlines()
        return {line for line in lines if line.startswith(prefixes) and not line.endswith(" 0.0")}

    def is_quiet(self) -> bool:
        """Does every model's own task wait for something to do, and is nothing on its way? What counts tasks before
        that, counts whatever a pool that grows has at that moment."""
        units = list(self.house.units.values())
        waiting = sum(getattr(t.get_coro(), "__qualname__", "") == "Unit._until_woken" for t in asyncio.all_tasks())
        replicas = [replica for unit in units for each in unit.generations for replica in each.everybody]
        is_idle = not any(unit.reclaims or unit.newer or unit._poked for unit in units)
        return is_idle and waiting == len(units) and not any(replica.changes._unconfirmed for replica in replicas)

    def dump(self) -> dict[str, Any]:
        """Everything a change may touch."""
        units = self.house.units
        routes = [self.router.route(name) for name in units]
        return {
            "routes": {r.name: (r.settings, r.names(), r.serving, r.gone, r.waiting) for r in routes if r},
            "served": self.router.served(),
            "units": {
                u.name: (u.active, u.serving, u.loading, tuple(u.draining), len(u.reclaims), u.trouble, u.degraded)
                for u in units.values()
            },
            "limits": {u.name: u.serving.engine_limits for u in units.values() if u.serving},
            "ledger": self.house.ledger.view(),
            "active": self.reconciler.active,
            "sockets": (self.sockets.serving, self.sockets.bound),
            "metrics": self.series("generation_state", "engine_up", "memory_bytes", "config_info"),
            "children": self.children(),
            "fds": len(list(Path("/proc/self/fd").iterdir())),
            "tasks": len(asyncio.all_tasks()),
        }

    async def comes_back_to(self, before: dict[str, Any], *besides: str) -> None:
        """Waits until the dump is `before` again, but for these keys; says what differs if it never is."""
        differing: list[str] = []

        def is_back() -> bool:
            now = self.dump()
            keys = [key for key in now if key not in besides and now[key] != before[key]]
            differing[:] = [f"{key}: {now[key]} is not {before[key]}" for key in keys]
            return not differing

        try:
            await until(is_back, "all is as it was")
        except TimeoutError as error:
            raise AssertionError("\n".join(differing)) from error

    async def stop(self) -> None:
        """Ends all, and says which processes are left over: none may be. Once is enough."""
        if self.is_stopped:
            return
        self.is_stopped = True
        await self.reconciler.stop()
        await until(lambda: not self.children(), "no process is left")
        await self.stage.close()
        await until(lambda: len(asyncio.all_tasks()) == 1, "no task is left")

    def _read(self) -> Content:
        if self.text is None:
            raise SourceError("config.yaml cannot be read")
        return content(self.text)


def content(text: str) -> Content:
    return Content(text.encode(), hashlib.sha256(text.encode()).hexdigest())


async def collect(answer: Answer) -> list[TextEvent]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in answer.events()]


def failure_of(events: list[TextEvent]) -> str | None:
    last = events[-1]
    return last.failure.code if isinstance(last, Finished) and last.failure else None


async def reached(receipt: Receipt, milestone: Milestone = Milestone.CLOSED) -> Receipt:
    async with asyncio.timeout(PATIENCE_S):
        await receipt.wait(milestone)
    return receipt


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Looks until the condition gives something true, and returns that."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        await asyncio.sleep(0.005)
    raise TimeoutError(what)


@cache
def _checkpoint_bytes(path: Path) -> bytes:
    tokenizer = gguf_files.bpe_tokenizer()
    tensors = gguf_files.llama_tensors(len(tokenizer["tokenizer.ggml.tokens"]))
    return gguf_files.write_gguf(path, {**gguf_files.llama_sizes(), **tokenizer}, tensors).read_bytes()


def _checkpoint(folder: Path) -> bytes:
    return _checkpoint_bytes(folder / "made.gguf")
