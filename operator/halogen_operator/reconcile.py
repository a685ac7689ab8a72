"""One look at one HalogenModel: what is wanted, what is there, and the next step from here to there.

Owns the order of steps. Every step may be the last (the operator may end at any call it makes), and every look begins
from nothing but the cluster and the pods: so a step is done only if it still has to be, and none waits for what it
began. Must never know how a step is done.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from halogen_operator import credentials
from halogen_operator.applying import Whose, applied, remove_unwanted, whose
from halogen_operator.engines import EngineError, Engines
from halogen_operator.events import events
from halogen_operator.kube import Kube
from halogen_operator.memory import Memory
from halogen_operator.metrics import Metrics
from halogen_operator.names import admin_name, document_name
from halogen_operator.observed import Observed
from halogen_operator.plan_only import asked, plan
from halogen_operator.pods import PodState, PodView, Trouble, live_template
from halogen_operator.reasons import Why
from halogen_operator.recorder import record
from halogen_operator.render import Held, template_of
from halogen_operator.resources import CONFIG_MAP, DEPLOYMENT, POD, SECRET
from halogen_operator.rollout import Rollout, decide
from halogen_operator.status import status
from halogen_operator.store import Store
from halogen_operator.wanted import Ref, Refusal, Wanted

_LOG = structlog.get_logger()


@dataclass(frozen=True)
class World:
    """What a look works with. `now` has a time zone; `identity` is this operator's among others."""

    kube: Kube
    store: Store
    engines: Engines
    memory: Memory
    metrics: Metrics
    now: Callable[[], dt.datetime]
    identity: str


@dataclass(frozen=True)
class Look:
    """What a look found. `is_settled`: nothing is to come of what was asked, or not before somebody mends something.
    `has_changed`: it wrote a status or a pod took a document. `is_refused`: the API server refused a child, and no
    pod has anything under way that wants following."""

    is_settled: bool
    has_changed: bool
    is_refused: bool = False


async def reconcile(uid: str, world: World) -> Look | None:
    """Looks once; None: there is no such HalogenModel, or none for long. Raises `KubeError`, of these `ConflictError`
    where somebody was quicker: look again."""
    body = world.store.model(uid)
    if body is None or body["metadata"].get("deletionTimestamp"):
        return None  # the cluster's garbage collector takes the children, and their pods drain by themselves
    wanted = world.memory.read(body)
    if isinstance(wanted, Refusal):
        seen, pushed = await _observe(wanted, world), False
    elif wanted.is_plan_only:
        seen, pushed = await _plan(wanted, body, await _observe(wanted, world), world), False
    else:
        seen, pushed = await _carry_out(wanted, body, world)
    is_written, new = await _tell(body, wanted, seen, world)
    refused = any(each.why is Why.CHILD_REFUSED for each in seen.troubles)
    is_moving = pushed or any(each.engine is not None and each.engine.is_changing for each in seen.there)
    return Look(_is_settled(new), is_written or pushed, refused and not is_moving)


async def _carry_out(wanted: Wanted, body: Mapping[str, Any], world: World) -> tuple[Observed, bool]:
    """What was seen, and whether a pod took a document."""
    secret, troubles = await _secret(wanted.ref, world)
    held = _held(wanted.ref, world)
    manifests = world.memory.render(wanted, held, secret)
    refused = await applied(world.kube, world.store, wanted.ref, manifests)
    if not _was_carried_out(wanted, body.get("status") or {}):
        await remove_unwanted(world.kube, world.store, wanted.ref, manifests)
    troubles += tuple(Trouble(Why.CHILD_REFUSED, each.message) for each in refused if not each.is_passing)
    passing = next((each.message for each in refused if each.is_passing), "")
    is_behind = bool(passing) or any(each.is_essential for each in refused)
    seen = await _observe(wanted, world, secret)
    seen = replace(seen, troubles=troubles, is_behind=is_behind, waits_for=passing)
    if seen.rollout.serving and held.document != wanted.written:
        await _keep(wanted, held, secret, world)
    return await _push(wanted, seen, secret, world)


def _was_carried_out(wanted: Wanted, before: Mapping[str, Any]) -> bool:
    """Was this generation ever more than planned or refused? A plan ends by an annotation, and an operator of another
    release may take what one refused: neither makes a generation."""
    return before.get("observedGeneration") == wanted.generation and "desired" in before and "plan" not in before


async def _secret(ref: Ref, world: World) -> tuple[Mapping[str, bytes], tuple[Trouble, ...]]:
    """The Secret's content as it should be, and what was wrong with it as it was."""
    live = world.store.find(SECRET, ref.namespace, admin_name(ref.name))
    if live is None:  # made once: it may be there without our having heard of it yet
        live = await world.kube.get(SECRET, ref.namespace, admin_name(ref.name))
    now = world.now()
    if live is None or whose(live, ref) is not Whose.OURS:
        return credentials.issue(ref, now), ()
    content = _decoded(live)
    fault = credentials.fault(content, ref)
    troubles = () if fault is None else (Trouble(Why.SECRET_BROKEN, f"the Secret {admin_name(ref.name)} {fault}"),)
    return credentials.renewed(content, ref, now) or content, troubles


async def _observe(of: Wanted | Refusal, world: World, secret: Mapping[str, bytes] | None = None) -> Observed:
    """Every pod, asked at once, and for what is wanted: which of them get it now."""
    ref = of.ref
    deployment = world.store.find(DEPLOYMENT, ref.namespace, ref.name)
    pods = tuple(PodView.of(each) for each in world.store.children(ref.namespace, ref.name, POD))
    states = await world.engines.observe(pods, secret or _live_secret(ref, world), ref)
    rollout = Rollout() if isinstance(of, Refusal) else decide(of, states, live_template(deployment))
    return Observed(states, rollout, deployment)


async def _plan(wanted: Wanted, body: Mapping[str, Any], seen: Observed, world: World) -> Observed:
    """With what a pod says the document would do there. What a pod said of this generation, and the status has, stays:
    making a plan reads the headers of large files."""
    known = (body.get("status") or {}).get("plan") or {}
    if known.get("generation") == wanted.generation and known.get("pod"):
        return replace(seen, plan=known, is_behind=known.get("replacesPods") is True)
    secret = _live_secret(wanted.ref, world)
    state, answer, trouble = asked(seen.states), None, ""
    if state is not None:
        try:
            answer = await world.engines.plan(state.pod, wanted, secret)
        except EngineError as error:
            trouble = str(error)
    template = template_of(world.memory.render(wanted, _held(wanted.ref, world), secret))
    replaces_pods = template != live_template(seen.deployment)
    told = plan(wanted, state, answer, replaces_pods=replaces_pods, trouble=trouble)
    return replace(seen, plan=told, is_behind=replaces_pods)


async def _keep(wanted: Wanted, held: Held, secret: Mapping[str, bytes], world: World) -> None:
    """A pod serves the document: those that start from now on may start with it."""
    manifests = world.memory.render(wanted, replace(held, document=wanted.written), secret)
    config_map = [each for each in manifests if each["kind"] == CONFIG_MAP.name]
    await applied(world.kube, world.store, wanted.ref, config_map)


async def _push(wanted: Wanted, seen: Observed, secret: Mapping[str, bytes], world: World) -> tuple[Observed, bool]:
    """Hands the document to the pods whose turn it is; what comes of it is seen at the next look. What was seen, with
    the word of one that would not have it, and whether one took it."""
    states = [each for each in seen.states if each.name in seen.rollout.push]
    errors = await asyncio.gather(*(_push_one(wanted, each, secret, world) for each in states))
    refused = [each for each in errors if each is not None]
    if refused and None not in errors:
        seen = replace(seen, rollout=replace(seen.rollout, waits_for=refused[0]))
    return seen, None in errors


async def _push_one(wanted: Wanted, state: PodState, secret: Mapping[str, bytes], world: World) -> str | None:
    """A pod that does not take it now is seen again; it keeps nothing else from being done. None: it took it; else
    why not."""
    replaces = None if state.engine is None else state.engine.desired
    log = _LOG.bind(model=wanted.ref.name, namespace=wanted.ref.namespace, pod=state.name)
    try:
        receipt = await world.engines.push(state.pod, wanted, secret, replaces)
    except EngineError as error:
        world.metrics.pushed("error")
        log.warning("document_not_pushed", error=str(error))
        return f"{state.name} to take the document: {error}"
    world.metrics.pushed(receipt.outcome or "accepted")
    log.info("document_pushed", generation=wanted.generation, receipt=receipt.id, outcome=receipt.outcome)
    return None


async def _tell(
    body: Mapping[str, Any], of: Wanted | Refusal, seen: Observed, world: World
) -> tuple[bool, Mapping[str, Any]]:
    """Writes the status if it is another than before, its events first. Whether it was written, and the status."""
    before, now = body.get("status") or {}, world.now()
    new = status(of, seen, before, now)
    world.metrics.conditions(of.ref.namespace, of.ref.name, new["conditions"])
    if new == before:
        return False, new
    await record(world.kube, body, events(before, new), now, world.identity)
    after = await world.kube.patch_status(body, new)
    world.store.put(after)
    return after.get("status") != before, new  # a definition of an older release may drop what is new in it


def _is_settled(status: Mapping[str, Any]) -> bool:
    return all(each["status"] != "True" for each in status["conditions"] if each["type"] == "Reconciling")


def _held(ref: Ref, world: World) -> Held:
    config_map = world.store.find(CONFIG_MAP, ref.namespace, document_name(ref.name))
    return Held.of(config_map, world.store.find(DEPLOYMENT, ref.namespace, ref.name))


def _live_secret(ref: Ref, world: World) -> dict[str, bytes]:
    """As it is; empty where there is none."""
    live = world.store.find(SECRET, ref.namespace, admin_name(ref.name))
    return {} if live is None else _decoded(live)


def _decoded(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """What is no base64 counts as not there: `credentials` makes it anew."""
    found = {}
    for name, text in (secret.get("data") or {}).items():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return found
