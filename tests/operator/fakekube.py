"""A stand-in for the Kubernetes API server, on kmock: near enough for an operator, its children and kubectl.

It owns what kmock leaves out: revisions, generations, conflicts, subresources, server-side apply with field
managers, schema, defaults and CEL of custom kinds, selectors, watches with bookmarks and 410, tables, garbage
collection. The machinery is in `support.kube`; here is what a test holds in its hand: the calls that were seen, and the
faults it asks for.

Not here: controllers (nothing makes a Pod of a Deployment), webhooks, quotas, conversion between versions, protobuf,
and built-in kinds or fields that neither the operator nor its installation uses.

    async with FakeKube() as kube:
        kube.url                                    # http://127.0.0.1:PORT
        kube.objects.create({...})                  # from inside: same rules, not counted, no faults
        kube.faults.fail(409, verb="patch", kind="HalogenModel", nth=2)
        [call for call in kube.calls if call.is_write]
        await kube.until(lambda: kube.objects.find("Deployment", "m"))

By hand, for kubectl:  PYTHONPATH=tests:tests/operator python -m fakekube 8001
"""

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import kmock
import yaml
from support.kube import rbac
from support.kube.faults import Call, Faults
from support.kube.front import Front
from support.kube.garbage import Garbage
from support.kube.kinds import Kinds
from support.kube.objects import Objects
from support.kube.serving import Serving
from support.kube.store import Store
from support.kube.watching import Watch
from support.kube.writes import Writes

CRDS = Path(__file__).parents[2] / "crds"
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@functools.cache
def _definitions(path: Path) -> tuple[dict[str, Any], ...]:
    """Read once a process: a test makes many servers."""
    return tuple(body for body in yaml.load_all(path.read_bytes(), Loader=yaml.CSafeLoader) if body)


def _with_defaults(crds: Path) -> list[dict[str, Any]]:
    paths = [*sorted(crds.glob("*.yaml")), *sorted((Path(__file__).parent / "crds").glob("*.yaml"))]
    return [body for path in paths for body in _definitions(path)]


class FakeKube:
    """One API server, in the test's event loop.

    Args:
        crds: a folder of CustomResourceDefinitions to begin with; ours, unless told otherwise. Those of peering and of
            ServiceMonitors, which others install, are always there: `kube.objects.delete` them to be without.
        tokens: bearer tokens that are let in; None lets everybody in. May be changed at any time.
        clock: what stamps objects; may be changed at any time.
        bookmark_s: how often a watch that asked for bookmarks gets one; `bookmark()` sends one at once.
    """

    def __init__(
        self,
        crds: Path = CRDS,
        *,
        tokens: set[str] | None = None,
        clock: Callable[[], datetime] = _utc_now,
        bookmark_s: float = 60.0,
        port: int | None = None,
    ) -> None:
        self.kinds = Kinds()
        self.store = Store()
        self.faults = Faults()
        self.clock = clock
        self._writes = Writes(self.store, self.kinds, self._now)
        self.objects = Objects(self.store, self.kinds, self._writes)
        self._serving = Serving(self.store, self._writes, self._now, bookmark_s)
        self._garbage = Garbage(self.store, self.kinds, self._writes)
        self.front = Front(self.store, self.kinds, self._serving, self.faults, tokens)
        self._server = kmock.Server(self.front, port=port)
        self._collector: asyncio.Task[None] | None = None
        for name in NAMESPACES:
            self.namespace(name)
        for body in _with_defaults(crds):
            self.objects.create(body)

    def _now(self) -> datetime:
        return self.clock()

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return str(self._server.url).rstrip("/")

    @property
    def calls(self) -> list[Call]:
        """Every request for a resource that came in, oldest first."""
        return self.front.calls

    @property
    def tokens(self) -> set[str] | None:
        """Who is let in; None for everybody."""
        return self.front.tokens

    @tokens.setter
    def tokens(self, tokens: set[str] | None) -> None:
        self.front.tokens = tokens

    @property
    def watches(self) -> list[Watch]:
        """The streams that are open now."""
        return list(self._serving.watches)

    def namespace(self, name: str) -> str:
        """Make one; returns its name."""
        self.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def only_as(self, account: str, namespace: str) -> None:
        """From now on callers may do what the roles that are stored now grant this ServiceAccount; the rest is 403."""
        kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
        given = rbac.grants(account, namespace, [one for kind in kinds for one in self.objects.list(kind)])
        user = f"system:serviceaccount:{namespace}:{account}"

        def strike(call: Call) -> None:
            rbac.check(call, given, user)
            if call.is_apply and self.objects.find(call.kind, call.name, call.namespace) is None:
                rbac.check(replace(call, verb="create", name=""), given, user)

        self.faults.hook(strike, times=None)

    async def __aenter__(self) -> Self:
        await self.front.__aenter__()
        self._collector = asyncio.create_task(self._collect())
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.is_closed = True
        self.cut_watches()
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.wait([self._collector])
        await self._server.__aexit__(kind, error, trace)
        await self.front.__aexit__(kind, error, trace)

    async def _collect(self) -> None:
        waiter = self.store.listen(None)
        try:
            while True:
                waiter.heard.clear()
                self._garbage.collect()
                self._end_unserved()
                await waiter.heard.wait()
        finally:
            self.store.stop_listening(waiter)

    def _end_unserved(self) -> None:
        for watch in self._serving.watches:
            if self.kinds.of_key(watch.kind.key) is None:
                watch.is_cut = True
                watch.wake.set()

    async def until(self, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait for something to hold, looked at after every write and every call; returns what it gave.

        Raises:
            TimeoutError: it did not come to hold.
        """
        waiter = self.store.listen(None)
        try:
            async with asyncio.timeout(seconds):
                while not (found := holds()):
                    waiter.heard.clear()
                    await waiter.heard.wait()
            return found
        finally:
            self.store.stop_listening(waiter)

    def _watches(self, kind: str | None) -> Iterable[Watch]:
        return [watch for watch in self._serving.watches if kind in {None, watch.kind.kind}]

    def cut_watches(self, kind: str | None = None, *, abruptly: bool = False) -> int:
        """End the open streams, in good order or in the middle of the connection; returns how many."""
        found = list(self._watches(kind))
        for watch in found:
            watch.is_cut, watch.is_abrupt = True, abruptly
            watch.wake.set()
        return len(found)

    def expire_watches(self, kind: str | None = None) -> None:
        """Say 410 in the open streams, and to whoever begins one before now."""
        self.store.compact()
        for watch in self._watches(kind):
            watch.is_expired = True
            watch.wake.set()

    def silence_watches(self, kind: str | None = None) -> None:
        """Leave the open streams open and say nothing more in them, not even bookmarks."""
        for watch in self._watches(kind):
            watch.is_silent = True

    def release_watches(self, kind: str | None = None) -> None:
        """Let silent streams speak again: what they kept to themselves comes now."""
        for watch in self._watches(kind):
            watch.is_silent = False
            watch.wake.set()

    def bookmark(self, kind: str | None = None) -> None:
        """Send each open stream that asked for bookmarks one now."""
        for watch in self._watches(kind):
            watch.wants_bookmark = True
            watch.wake.set()


async def _by_hand(port: int) -> None:
    async with FakeKube(port=port) as kube:
        sys.stdout.write(f"{kube.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_by_hand(int(sys.argv[1]) if len(sys.argv) > 1 else 8001))
