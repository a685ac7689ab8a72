"""One pod on the stand-in node, from its volumes to its end: a real `halogend` behind the status that a kubelet writes.

Owns the process and the pod's folder. What the API server has of the pod comes in by `told`; what happened goes out
through `report`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from support.pod_box import Box, Mount
from support.pod_probes import PERIOD_S, Probes
from support.pod_volumes import NotYetError

_BACK_OFF_S = 0.3


class PodRun:
    """`volumes` are where they were laid out, by name. Single writer of everything below `folder`."""

    def __init__(self, body: dict[str, Any], address: str, folder: Path) -> None:
        self.body = body
        self.address = address
        self.restarts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log"
        self.volumes: Mapping[str, Path] = {}
        self._root = folder / "root"
        self._container: dict[str, Any] = body["spec"]["containers"][0]
        self._ends = asyncio.Event()
        self._said: dict[str, Any] = {}
        folder.mkdir(parents=True)

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    def told(self, body: dict[str, Any] | None) -> None:
        """What the API server has of it now; None where it is gone."""
        self.body = body or self.body
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._ends.set()

    async def run(
        self, mount: Callable[[], Mapping[str, Path]], report: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        """Until the pod is deleted and its process has ended. `mount` lays the volumes out."""

        async def say(reason: str, message: str) -> None:
            waiting = {"reason": reason, "message": message} if message else {"reason": reason}
            await self._report(report, {"waiting": waiting}, is_ready=False)

        try:
            while not self._ends.is_set():
                try:
                    self.volumes = mount()
                except NotYetError as error:
                    # Which volume it is, a kubelet tells in events alone.
                    await say(error.reason, "" if error.reason == NotYetError.MOUNTS else str(error))
                    await self._pause(PERIOD_S)
                    continue
                await self._live(report)
                if not self._ends.is_set():
                    self.restarts += 1
                    await say("CrashLoopBackOff", "back-off restarting failed container")
                    await self._pause(_BACK_OFF_S)
        finally:
            self.kill()

    async def execute(self, *words: str) -> tuple[int, str]:
        """Exit status and output of `halogend WORDS` in the container that runs."""
        if self.process is None:
            raise NotYetError("ContainerCreating", "no container runs")
        return await asyncio.to_thread(self._box().execute, self.process.pid, words)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    async def _live(self, report: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """One life of the container."""
        self.process = self._box().start(self.log)
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        probes = Probes(self.address, self._container)
        while self.process.poll() is None and not self._ends.is_set():
            if await probes.is_dead():
                self.kill()
                return
            await self._report(report, {"running": {"startedAt": began}}, is_ready=await probes.is_ready())
            await self._pause(PERIOD_S)
        if self._ends.is_set():
            await self._stop(self.process)

    async def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM, and whoever called kills it when the grace period is over. The sleep before it is left out: there
        is no load balancer here that it waits for."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        grace = self.body["metadata"].get("deletionGracePeriodSeconds", 30)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while process.poll() is None:  # noqa: ASYNC110  a process that ended is no event here
                    await asyncio.sleep(PERIOD_S / 4)

    def _box(self) -> Box:
        mounts = [
            Mount(self.volumes[each["name"]], each["mountPath"], is_read_only=bool(each.get("readOnly")))
            for each in self._container.get("volumeMounts", [])
        ]
        words = [*self._container.get("command", ["halogend"]), *self._container.get("args", [])]
        if words[0].rpartition("/")[2] != "halogend":
            raise ValueError(f"the image's program is halogend, not {words}")
        security = {**self.body["spec"].get("securityContext", {}), **self._container.get("securityContext", {})}
        return Box(self._root, self.address, mounts, words[1:], self._environ(), security)

    def _environ(self) -> dict[str, str]:
        metadata = self.body["metadata"]
        known = {"status.podIP": self.address, "spec.nodeName": self.body["spec"]["nodeName"]}
        known |= {f"metadata.{key}": metadata.get(key, "") for key in ("name", "namespace", "uid")}
        given = self._container.get("env", [])
        return {each["name"]: each.get("value") or known[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in given}

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ends.wait()

    async def _report(
        self, report: Callable[[dict[str, Any]], Awaitable[None]], state: dict[str, Any], *, is_ready: bool
    ) -> None:
        """Once for what is the same."""
        status = self._status(state, is_ready=is_ready)
        if status != self._said:
            await report(status)
            self._said = status

    def _status(self, state: dict[str, Any], *, is_ready: bool) -> dict[str, Any]:
        yes = "True" if is_ready else "False"
        kinds = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": yes, "Ready": yes}
        container = {
            "name": self._container["name"],
            "image": self._container["image"],
            "imageID": "",
            "ready": is_ready,
            "started": "running" in state,
            "restartCount": self.restarts,
            "state": state,
        }
        if self.process is not None and self.process.returncode is not None:
            container["lastState"] = {"terminated": {"exitCode": self.process.returncode, "reason": "Error"}}
        where = {"hostIP": self.address}
        if state.get("waiting", {}).get("reason") != NotYetError.MOUNTS:  # no network before its volumes are there
            where |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        return where | {
            "phase": "Pending" if self.process is None else "Running",
            "conditions": [{"type": kind, "status": value} for kind, value in kinds.items()],
            "containerStatuses": [container],
        }
