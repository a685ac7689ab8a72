"""Values that the operator's pure parts take, made from the words of those who would say them: a HalogenModel, pods as
an API server has them, a daemon's answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from halogen_operator import answers
from halogen_operator.engine_view import EngineView
from halogen_operator.house import House
from halogen_operator.pods import PodState, PodView
from halogen_operator.wanted import Refusal, Wanted, read

HOUSE = House("registry.example/halogend:1", "halogen-system", {"app.kubernetes.io/name": "halogen-operator"}, "1")
UID = "1c9d0f6e-chat"
NOW = dt.datetime(2026, 5, 4, 12, 0, 0, tzinfo=dt.UTC)
KEY = {"name": "team-a", "secretKeyRef": {"name": "keys", "key": "team-a"}}


def body(*, generation: int = 1, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A HalogenModel `chat` in `serving`; fields of the spec as they are written."""
    meta = {"name": "chat", "namespace": "serving", "uid": UID, "generation": generation}
    if annotations:
        meta["annotations"] = dict(annotations)
    return {
        "apiVersion": "halogen.dev/v1alpha1",
        "kind": "HalogenModel",
        "metadata": meta,
        "spec": {"model": "/models/chat", "auth": {"keys": [KEY]}, **spec},
    }


def wanted(*, generation: int = 1, annotations: Mapping[str, str] | None = None, **spec: Any) -> Wanted:
    found = read(body(generation=generation, annotations=annotations, **spec), HOUSE)
    assert isinstance(found, Wanted), found.problems
    return found


def refusal(*, generation: int = 1, **spec: Any) -> Refusal:
    found = read(body(generation=generation, **spec), HOUSE)
    assert isinstance(found, Refusal)
    return found


# --- pods ---------------------------------------------------------------------------------------------


def pod(name: str = "chat-a", *, ready: bool = True, template: str = "", devices: int = 0, **status: Any) -> PodView:
    return PodView.of(pod_body(name, ready=ready, template=template, devices=devices, **status))


def pod_body(
    name: str = "chat-a", *, ready: bool = True, template: str = "", devices: int = 0, **status: Any
) -> dict[str, Any]:
    """`status` is laid over that of a pod that runs."""
    annotations = {"halogen.dev/devices": str(devices)} | ({"halogen.dev/template": template} if template else {})
    running = {
        "phase": "Running",
        "podIP": "10.1.0.7",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    meta = {"name": name, "namespace": "serving", "uid": f"uid-{name}", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {**running, **status}}


def waiting(reason: str, message: str = "", **container: Any) -> dict[str, Any]:
    """A container's status that waits."""
    return {
        "name": "halogend",
        "image": "registry.example/halogend:1",
        "state": {"waiting": {"reason": reason, "message": message}},
        **container,
    }


# --- daemons ------------------------------------------------------------------------------------------


def receipt(
    of: Wanted, outcome: str | None = "applied", *, number: int = 1, generation: int | None = None, **more: Any
) -> dict[str, Any]:
    """As a daemon shows the record of a push of this document."""
    return {
        "id": f"r{number}",
        "outcome": outcome,
        "trigger": "put",
        "origin": {"uid": of.ref.uid, "generation": of.generation if generation is None else generation},
        "revision": of.revision,
        "milestones": {"accepted": 1.0},
        "problems": [],
        "models": [],
        **more,
    }


def problem(path: str, code: str = "HCF-1019", message: str = "soft must be below hard", hint: str = "lower it") -> Any:
    return {"code": code, "message": message, "hint": hint, "file": "spec", "line": 3, "column": 5, "path": path}


def model(state: str = "serving", *, loaded: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """One entry of a status' models; `loaded` are bytes that are, and that are to be."""
    loading = None if loaded is None else {"stage": "weights", "loaded_bytes": loaded[0], "total_bytes": loaded[1]}
    return {"state": state, "trouble": None, "degraded": None, "loading": loading, **more}


def engine(
    desired: Wanted | None,
    *,
    active: Wanted | None = None,
    models: Mapping[str, Any] | None = None,
    receipts: Iterable[Mapping[str, Any]] = (),
    hold: Mapping[str, Any] | None = None,
) -> EngineView:
    """Of a daemon that is asked for `desired` and serves `active`, the same where that is left out. Without `models`
    the one of the document serves."""
    active = desired if active is None else active
    revisions = [None if each is None else each.revision[:12] for each in (desired, active)]
    status = {
        "version": "0.1.0",
        "revision": dict(zip(("desired", "active"), revisions, strict=True)),
        "settled": True,
        "models": {"chat": model()} if models is None else models,
        "hold": hold,
    }
    text, tag = ("", None) if desired is None else (desired.document, desired.revision)
    return view(status, text, tag, list(receipts))


def view(status: Mapping[str, Any], document: str, tag: str | None, receipts: list[Mapping[str, Any]]) -> EngineView:
    """Of a daemon's three answers, as they come."""
    told = answers.read({"receipts": receipts}, answers.Receipts).receipts
    return EngineView.of(answers.read(status, answers.Status), document, tag, told)


def serving(of: Wanted, name: str = "chat-a", **more: Any) -> PodState:
    """A pod that is ready and answers by this document."""
    return PodState(pod(name, **more), engine(of, receipts=[receipt(of)]))


BARE = wanted(model="/nothing")
"""Stands for the document that a pod starts with: `fresh` shows it without a model."""


def fresh(name: str = "chat-a", **more: Any) -> PodState:
    """A pod that was just started: unready, with a document that has no model."""
    return PodState(pod(name, ready=False, **more), engine(BARE, models={}))
