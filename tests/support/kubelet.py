"""A node for tests: runs the pods bound to it as real `halogend` processes, each at a loopback address of its own.

Beside the stand-in API server and beside a real one. What a test may set: how far mounts lag, which images are not
there, which folder a claim is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.kube_client import KubeClient, RefusedError, View
from support.pod_run import PodRun
from support.pod_volumes import NotYetError, content, mode_of, swap

NODE = "halogen-stand-in"


class Kubelet:
    """`runs` are its pods by UID. While `follows_mounts` is False, volumes of pods that have them keep what they had,
    as they do on a node for a minute or two. `claims` are folders by the name of a claim or an image volume."""

    def __init__(self, client: KubeClient, folder: Path, claims: Mapping[str, Path]) -> None:
        self.runs: dict[str, PodRun] = {}
        self.follows_mounts = True
        self.missing_images: set[str] = set()
        self._client = client
        self._folder = folder
        self._claims = claims
        self._count = 0
        self._pods = View(client, "Pod", fieldSelector=f"spec.nodeName={NODE}")
        self._objects = {kind: View(client, kind) for kind in ("ConfigMap", "Secret")}

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for view in self._objects.values():
                    group.create_task(view.run())
                    group.create_task(self._follow(view))
                group.create_task(self._pods.run())
                async for pods in self._pods:
                    self._take(group, pods)
        finally:
            for run in self.runs.values():
                run.kill()

    def catch_up(self) -> None:
        """Mounts follow, now and from now on."""
        self.follows_mounts = True
        for run in self.runs.values():
            with contextlib.suppress(NotYetError):  # what is gone stays mounted
                self._lay_out(run)

    async def _follow(self, view: View) -> None:
        async for _ in view:
            if self.follows_mounts:
                self.catch_up()

    def _take(self, group: asyncio.TaskGroup, pods: Mapping[str, dict[str, Any]]) -> None:
        here = {body["metadata"]["uid"]: body for body in pods.values()}
        for uid, run in self.runs.items():
            run.told(here.get(uid))
        for uid in here.keys() - self.runs.keys():
            group.create_task(self._live(uid, self._new(here[uid])))

    def _new(self, body: dict[str, Any]) -> PodRun:
        """At an address of 127/8, so that neither tests beside this one nor anybody else's port is in its way."""
        self._count += 1
        high, low = divmod(os.getpid() % 62500, 250)
        run = PodRun(body, f"127.{high + 2}.{low + 2}.{self._count}", self._folder / f"pod{self._count}")
        run.told(body)
        self.runs[body["metadata"]["uid"]] = run
        return run

    async def _live(self, uid: str, run: PodRun) -> None:
        async def report(status: dict[str, Any]) -> None:
            change = {"metadata": {"uid": uid}, "status": status}
            try:
                await self._client.merge("Pod", run.name, change, "status")
            except RefusedError as error:
                if error.status not in {404, 409, 422}:  # gone, or another one of its name
                    raise

        await run.run(lambda: self._mount(run), report)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._client.delete("Pod", run.name, options)
        del self.runs[uid]

    def _mount(self, run: PodRun) -> dict[str, Path]:
        """For a container that is to start. Raises NotYetError."""
        image = run.body["spec"]["containers"][0]["image"]
        if image in self.missing_images:
            raise NotYetError("ImagePullBackOff", f'Back-off pulling image "{image}"')
        return self._lay_out(run)

    def _lay_out(self, run: PodRun) -> dict[str, Path]:
        """Where each volume is, by name. Raises NotYetError."""
        group = run.body["spec"].get("securityContext", {}).get("fsGroup")
        beside = self._folder / f"volumes-{run.body['metadata']['uid']}"
        return {
            volume["name"]: self._volume(volume, beside / volume["name"], group)
            for volume in run.body["spec"].get("volumes", [])
        }

    def _volume(self, volume: Mapping[str, Any], folder: Path, group: int | None) -> Path:
        if "persistentVolumeClaim" in volume:
            return self._claimed(volume["persistentVolumeClaim"]["claimName"])
        if "image" in volume:
            return self._claimed(volume["image"]["reference"])
        if "emptyDir" in volume:
            if not folder.exists():
                folder.mkdir(parents=True)
                folder.chmod(0o777)
        elif self.follows_mounts or not folder.exists():
            configs, secrets = (self._objects[kind].items for kind in ("ConfigMap", "Secret"))
            swap(folder, content(volume, configs, secrets), mode_of(volume), group)
        return folder

    def _claimed(self, name: str) -> Path:
        if name not in self._claims:
            raise NotYetError(NotYetError.MOUNTS, f"{name} is not there")
        return self._claims[name]
