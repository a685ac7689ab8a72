"""Pods whose daemons are played: a Deployment's controller and a kubelet in one, for tests of the operator alone.

The admin API that a pod has is real HTTP over the TLS of its Secret; what it answers is a page of Python instead of a
daemon. Each pod has a loopback address of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import re
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web
from support.kube.errors import ApiError

from halogend.config.canonical import canonical, revision
from halogend.config.parse import parse

if TYPE_CHECKING:
    from fakekube import FakeKube

Judge = Callable[[str], str]
"""A document's text -> the outcome that a pod gives it: applied, rejected or failed."""

Place = tuple[str, str]
"""Namespace and name."""

_CONCERN = {"deployments": "", "secrets": "-admin", "configmaps": "-document"}
"""Of a model: its children that are followed, and what is put behind its name."""

_KEY = web.AppKey("key", str)
_HOSTS = (f"127.1.{number // 250}.{number % 250 + 1}" for number in itertools.count())
_ORIGIN = re.compile(r"uid=([^,]*), generation=(\d+)")


@dataclass
class PlayedPod:
    """One pod's daemon: what it was started with, what it was handed, and what it says of that."""

    name: str
    namespace: str
    ip: str
    text: str
    judge: Judge
    receipts: list[dict[str, Any]] = field(default_factory=list)
    pushes: list[tuple[int, str]] = field(default_factory=list)
    """(generation, outcome) of every document that was handed in."""
    is_deaf: bool = False
    asked: int = 0
    """Requests that it answered, whatever it said."""

    @property
    def revision(self) -> str:
        return revision_of(self.text)

    @property
    def serves(self) -> bool:
        """Is there a model in its document?"""
        return bool(self._document().models)

    def _document(self) -> Any:
        return _read(self.text)

    def status(self) -> dict[str, Any]:
        models = {each.name: {"state": "serving"} for each in self._document().models}
        return {
            "version": "played",
            "revision": {"desired": self.revision, "active": self.revision},
            "settled": True,
            "hold": None,
            "models": models,
        }

    def take(self, text: str, origin: str) -> dict[str, Any]:
        """Judges a document; returns its receipt."""
        found = _ORIGIN.fullmatch(origin)
        assert found is not None
        document = _read(text)
        outcome = "unchanged" if document == self._document() else self.judge(text)
        if outcome in ("applied", "unchanged"):
            self.text = text
        problem = {"path": "models[0].model", "code": "HCF-1041", "message": "is not there"}
        receipt = {
            "id": f"{self.name}-{len(self.receipts)}",
            "origin": {"uid": found[1], "generation": int(found[2])},
            "revision": revision_of(text),
            "outcome": outcome,
            "milestones": {"serving": 1.0} if outcome in ("applied", "unchanged") else {},
            "problems": [problem] if outcome == "rejected" else [],
            "models": [],
        }
        self.receipts.insert(0, receipt)
        self.pushes.append((int(found[2]), outcome))
        return receipt


@cache
def _read(text: str) -> Any:
    document = parse(text.encode(), "document", {}).document
    assert document is not None
    return document


@cache
def revision_of(text: str) -> str:
    """Of a document, whichever way it is written: 64 digits."""
    return revision(_read(text))


class PlayedPods:
    """`async with PlayedPods(kube, port) as pods`: what follows the Deployments of a FakeKube, in all namespaces.

    `judge` may be set at any time and counts for documents handed in from then on. A new pod starts with the text of
    its ConfigMap, and is ready when that has a model. Writes from inside: they are not among the FakeKube's calls.
    """

    def __init__(self, kube: FakeKube, port: int, judge: Judge = lambda _: "applied") -> None:
        self.judge = judge
        self.pods: dict[str, PlayedPod] = {}
        """By namespace and name, with a slash between."""
        self._kube = kube
        self._port = port
        self._runners: dict[str, web.AppRunner] = {}
        self._places: dict[Place, set[str]] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        for name in list(self.pods):
            await self._end(name)
        if not self._task.cancelled():
            self._task.result()

    def of(self, model: str, namespace: str = "default") -> list[PlayedPod]:
        """A model's pods, by name."""
        return [self.pods[place] for place in sorted(self._places.get((namespace, model), ()))]

    def _judged(self, text: str) -> str:
        return self.judge(text)

    async def _follow(self) -> None:
        waiter = self._kube.store.listen(None)
        read, concerned = 0, set[Place]()
        try:
            while True:
                waiter.heard.clear()
                log = self._kube.store.log
                concerned |= {found for each in log[read:] if (found := _concerned(*each)) is not None}
                read = len(log)
                concerned = {each for each in sorted(concerned) if not await self._look(each)}
                await waiter.heard.wait()
        finally:
            self._kube.store.stop_listening(waiter)

    async def _look(self, model: Place) -> bool:
        """Has its Deployment what it wants? If not, what it needs is not there: a later write looks anew."""
        deployment = self._kube.objects.find("Deployment", model[1], model[0])
        known = self._places.setdefault(model, set())
        wanted = set() if deployment is None else set(_places(deployment))
        for place in known - wanted:
            known.discard(place)
            await self._end(place)
        if deployment is None:
            del self._places[model]
            return True
        for place in sorted(wanted - known):
            with contextlib.suppress(ApiError):
                if await self._start(place, deployment):
                    known.add(place)
        with contextlib.suppress(ApiError):
            self._tell_deployment(deployment, len(known))
        return known == wanted

    async def _start(self, place: str, deployment: dict[str, Any]) -> bool:
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        namespace, _, name = place.partition("/")
        secret = self._kube.objects.find("Secret", f"{meta['name']}-admin", namespace)
        config_map = self._kube.objects.find("ConfigMap", f"{meta['name']}-document", namespace)
        if secret is None or config_map is None:
            return False  # a kubelet waits for what it is to mount
        text = config_map["data"]["halogend.yaml"]
        pod = PlayedPod(name, namespace, _free_host(), text, self._judged)
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"]}
        metadata = {
            **template["metadata"],
            "name": name,
            "namespace": namespace,
            "ownerReferences": [{**owner, "controller": True}],
        }
        self._kube.objects.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
        self.pods[place] = pod
        await self._serve(pod, {each: base64.b64decode(text) for each, text in secret["data"].items()})
        self._tell(pod)
        return True

    async def _serve(self, pod: PlayedPod, secret: dict[str, bytes]) -> None:
        app = web.Application()
        app.router.add_get("/admin/v1/status", partial(self._status, pod))
        app.router.add_get("/admin/v1/document", partial(self._document, pod))
        app.router.add_get("/admin/v1/receipts", partial(self._receipts, pod))
        app.router.add_put("/admin/v1/document", partial(self._put, pod))
        app[_KEY] = secret["admin.key"].decode()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, pod.ip, self._port, ssl_context=_tls(secret)).start()
        self._runners[f"{pod.namespace}/{pod.name}"] = runner

    async def _answer(self, pod: PlayedPod, request: web.Request, body: dict[str, Any]) -> web.Response:
        pod.asked += 1
        if pod.is_deaf:
            raise web.HTTPServiceUnavailable
        if request.headers.get("Authorization") != f"Bearer {request.app[_KEY]}":
            raise web.HTTPUnauthorized
        return web.json_response(body)

    async def _status(self, pod: PlayedPod, request: web.Request) -> web.Response:
        return await self._answer(pod, request, pod.status())

    async def _document(self, pod: PlayedPod, request: web.Request) -> web.Response:
        await self._answer(pod, request, {})
        return web.Response(text=canonical(pod._document()), headers={"ETag": f'"{pod.revision}"'})

    async def _receipts(self, pod: PlayedPod, request: web.Request) -> web.Response:
        uid = request.query["uid"]
        return await self._answer(pod, request, {"receipts": [r for r in pod.receipts if r["origin"]["uid"] == uid]})

    async def _put(self, pod: PlayedPod, request: web.Request) -> web.Response:
        await self._answer(pod, request, {})
        expected = request.headers.get("If-Match", "").strip('"')
        if expected and not pod.revision.startswith(expected):
            return web.json_response({"error": {"message": "another document is there"}}, status=409)
        receipt = pod.take(await request.text(), request.headers["halogen-origin"])
        self._tell(pod)
        return web.json_response(receipt, status=422 if receipt["outcome"] == "rejected" else 202)

    def _tell(self, pod: PlayedPod) -> None:
        """The pod's status, as a kubelet writes it."""
        ready = "True" if pod.serves else "False"
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]
        status = {"phase": "Running", "podIP": pod.ip, "conditions": conditions}
        if self._kube.objects.find("Pod", pod.name, pod.namespace) is not None:
            self._kube.objects.patch("Pod", pod.name, {"status": status}, pod.namespace, subresource="status")

    def _tell_deployment(self, deployment: dict[str, Any], count: int) -> None:
        meta = deployment["metadata"]
        status = {"observedGeneration": meta["generation"], "replicas": count, "updatedReplicas": count}
        known = deployment.get("status") or {}
        if {key: known.get(key) for key in status} != status:
            self._kube.objects.patch(
                "Deployment", meta["name"], {"status": status}, meta["namespace"], subresource="status"
            )

    async def _end(self, place: str) -> None:
        pod, runner = self.pods.pop(place), self._runners.pop(place, None)
        if self._kube.objects.find("Pod", pod.name, pod.namespace) is not None:
            self._kube.objects.delete("Pod", pod.name, pod.namespace, grace_s=0)
        if runner is not None:
            await runner.cleanup()


def _concerned(key: tuple[str, str], place: Place, _: object) -> Place | None:
    """The model whose Deployment is to be looked at after a write to this object."""
    suffix = _CONCERN.get(key[1])
    return None if suffix is None or not place[1].endswith(suffix) else (place[0], place[1].removesuffix(suffix))


def _places(deployment: dict[str, Any]) -> list[str]:
    """Of the pods that a Deployment wants: those of another template have other names."""
    meta, template = deployment["metadata"], deployment["spec"]["template"]["metadata"]["annotations"]
    stem = f"{meta['namespace']}/{meta['name']}-{template['halogen.dev/template'][:8]}"
    return [f"{stem}-{number}" for number in range(deployment["spec"]["replicas"])]


def _free_host() -> str:
    return next(_HOSTS)


def _tls(secret: dict[str, bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(secret["tls.crt"] + b"\n" + secret["tls.key"])
        file.flush()
        context.load_cert_chain(file.name)
    return context
