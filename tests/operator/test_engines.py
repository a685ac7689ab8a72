"""The operator's way to a daemon: a real admin application over TLS, with a key, around a played world."""

import asyncio
import contextlib
import dataclasses
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from halogen_operator.credentials import issue
from halogen_operator.engines import MOST_AT_ONCE, EngineError, Engines, Limits, OvertakenError
from halogen_operator.names import ADMIN_KEY, CA_CERT, TLS_CERT, TLS_KEY
from halogen_operator.pods import PodState, PodView
from halogen_operator.rollout import Standing, decide, standing
from halogen_operator.wanted import Ref, Wanted, read
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from support.operator_values import HOUSE, NOW, body, pod
from support.played.world import GIB, World, document, reached, until
from support.played_admin import PlayedAdmin

from halogend.api.addresses import TcpAddress
from halogend.api.admin import admin_app
from halogend.api.auth import Guard
from halogend.api.listener import Listener
from halogend.config.access import TlsConfig
from halogend.config.canonical import canonical, revision
from halogend.config.parse import parse
from halogend.control.acceptance import Source
from halogend.control.certificates import read_certificate
from halogend.control.keys import Key, Keyring
from halogend.control.push import Push
from halogend.control.receipts import Milestone
from halogend.control.source import Content, PushedSource
from halogend.obs.metrics import Metrics

SECRET = issue(Ref.of(body()), NOW.fromtimestamp(time.time(), NOW.tzinfo))
OTHER = issue(Ref.of(body()), NOW.fromtimestamp(time.time(), NOW.tzinfo))


def of(text: str, generation: int = 1) -> Wanted:
    """What a spec would be that stands for this document, which a played world can read."""
    spec = read(body(generation=generation), HOUSE)
    parsed = parse(text.encode(), "spec", {}).document
    assert isinstance(spec, Wanted)
    if parsed is None:
        digest = hashlib.sha256(text.encode()).hexdigest()
        return dataclasses.replace(spec, document=text, written=text, revision=digest)
    return dataclasses.replace(spec, document=canonical(parsed), written=text, revision=revision(parsed))


@contextlib.asynccontextmanager
async def secured(app: Any, folder: Path, secret: dict[str, bytes] = SECRET) -> AsyncIterator[int]:
    """A listener as a pod's daemon has it: TLS, and a key for whoever comes. Its port."""
    config = TlsConfig(cert=str(folder / TLS_CERT), key=str(folder / TLS_KEY))
    for name in (TLS_CERT, TLS_KEY):
        (folder / name).write_bytes(secret[name])
        (folder / name).chmod(0o600)
    key = Key("halogen-operator", frozenset({"admin"}), hashlib.sha256(secret[ADMIN_KEY]).digest())
    guard = Guard(app, lambda: Keyring((key,)), "admin", Metrics("1"))
    listener = Listener(guard, TcpAddress("127.0.0.1", 0))
    listener.bind()
    assert isinstance(listener.address, TcpAddress)
    port = listener.address.port
    await listener.serve(read_certificate(config, time.time())[0].context)
    try:
        yield port
    finally:
        await listener.close(0)


@dataclass
class Engine:
    """A pod's daemon and the operator's end."""

    world: World
    engines: Engines
    pod: PodView
    secret: dict[str, bytes] = dataclasses.field(default_factory=lambda: dict(SECRET))

    async def state(self) -> PodState:
        (found,) = await self.engines.observe([self.pod], self.secret, Ref.of(body()))
        return found

    async def push(self, wanted: Wanted, if_match: str | None = None) -> PodState:
        """Handed in and carried out; what the operator sees then."""
        view = await self.engines.push(self.pod, wanted, self.secret, if_match)
        receipt = self.world.reconciler.receipts.get(view.id)
        assert receipt is not None
        await reached(receipt)
        return await self.state()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world", 64 * GIB)
    world.reconciler.source = Source.of(PushedSource("/etc/halogend/halogend.yaml", lambda: None), {})
    await world.stage.open()
    try:
        async with secured(admin_app(PlayedAdmin(world)), tmp_path) as port, Engines(port=port) as engines:
            yield Engine(world, engines, pod(podIP="127.0.0.1"))
    finally:
        await world.stop()


async def test_a_daemon_without_a_document_and_its_first(engine: Engine) -> None:
    before = await engine.state()
    assert before.engine is not None, before.error
    assert (before.engine.desired, before.engine.document, before.engine.models) == (None, None, ())
    wanted = of(document(engine.world.model("chat")))
    assert standing(wanted, before) is Standing.WANTS
    after = await engine.push(wanted)
    assert standing(wanted, after) is Standing.SERVES
    assert after.engine is not None
    assert (after.engine.desired, after.engine.active) == (wanted.revision[:12],) * 2
    assert after.engine.document == wanted.document
    receipt = after.engine.receipt
    assert receipt is not None
    assert (receipt.generation, receipt.revision, receipt.outcome) == (1, wanted.revision[:12], "applied")


async def test_an_edit_replaces_what_was_seen_and_nothing_else(engine: Engine) -> None:
    first = of(document(engine.world.model("chat")))
    await engine.push(first)
    edit = of(document(engine.world.model("chat", max_batch=7)), 2)
    after = await engine.push(edit, first.revision[:12])
    assert standing(edit, after) is Standing.SERVES
    late = of(document(engine.world.model("chat", max_batch=8)), 3)
    with pytest.raises(OvertakenError, match="If-Match names"):
        await engine.engines.push(engine.pod, late, engine.secret, first.revision)
    with pytest.raises(OvertakenError, match="generation 2 was handed in before"):
        await engine.engines.push(engine.pod, of(first.document, 1), engine.secret, None)
    assert engine.world.unit("chat").active.config.max_batch == 7


async def test_o2_a_rejected_document_is_told_with_its_place_and_what_served_serves_on(engine: Engine) -> None:
    first = of(document(engine.world.model("chat")))
    await engine.push(first)
    bad = of(document({"name": "chat", "model": "/no/such.gguf"}), 2)
    after = await engine.push(bad, first.revision)
    assert standing(bad, after) is Standing.REFUSED
    assert after.engine is not None
    assert (after.engine.desired, after.engine.served) == (first.revision[:12],) * 2
    receipt = after.engine.receipt
    assert receipt is not None
    assert receipt.outcome == "rejected"
    assert receipt.why.startswith("spec.model: HCK-")
    back = await engine.push(dataclasses.replace(first, generation=3), first.revision)
    assert standing(first, back) is Standing.SERVES


async def test_what_was_missing_and_came_is_tried_again_by_hand_in_the_pod(engine: Engine) -> None:
    """`halogend reload` there; its receipt is not the operator's, the document is."""
    wanted = of(document(engine.world.model("chat", file="late")))
    file = engine.world.folder / "late.gguf"
    data = file.read_bytes()
    file.unlink()
    assert standing(wanted, await engine.push(wanted)) is Standing.REFUSED
    file.write_bytes(data)
    assert standing(wanted, await engine.state()) is Standing.REFUSED
    hold = engine.world.stage.hold("load", role="engine")
    receipt = engine.world.reconciler.reload("api", "uid:0")
    await hold.reached()
    assert standing(wanted, await engine.state()) is Standing.CHANGES
    hold.release()
    await reached(receipt)
    assert standing(wanted, await engine.state()) is Standing.SERVES


async def test_a_document_that_cannot_be_carried_out(engine: Engine) -> None:
    first = of(document(engine.world.model("chat")))
    await engine.push(first)
    engine.world.stage.order("load", "fail", where={"role": "engine"}, code="HRT-1016", message="no memory")
    other = of(document(engine.world.model("chat", file="other")), 2)
    after = await engine.push(other, first.revision)
    assert standing(other, after) is Standing.REFUSED
    assert after.engine is not None
    assert after.engine.served == first.revision[:12]
    assert after.engine.receipt is not None
    assert "no memory" in after.engine.receipt.why


async def test_a_load_that_is_under_way(engine: Engine) -> None:
    hold = engine.world.stage.hold("load", role="engine")
    wanted = of(document(engine.world.model("chat")))
    view = await engine.engines.push(engine.pod, wanted, engine.secret, None)
    assert view.is_open
    await hold.reached()
    state = await engine.state()
    assert standing(wanted, state) is Standing.CHANGES
    assert state.engine is not None
    assert [each.is_loading for each in state.engine.models] == [True]
    hold.release()
    receipt = engine.world.reconciler.receipts.get(view.id)
    assert receipt is not None
    await reached(receipt)
    assert standing(wanted, await engine.state()) is Standing.SERVES


async def test_a_generation_on_probation_serves_and_may_still_be_taken_back(engine: Engine) -> None:
    first = of(document(engine.world.model("chat", probation={"s": 60})))
    await engine.push(first)
    edit = of(document(engine.world.model("chat", file="other", probation={"s": 60})), 2)
    view = await engine.engines.push(engine.pod, edit, engine.secret, first.revision)
    receipt = engine.world.reconciler.receipts.get(view.id)
    assert receipt is not None
    await reached(receipt, Milestone.SERVING)
    tried = await engine.state()
    assert standing(edit, tried) is Standing.SERVES
    assert tried.engine is not None
    assert tried.engine.is_on_probation
    engine.world.unit("chat").probation.fail("too many errors")
    await reached(receipt)
    back = await engine.state()
    assert standing(edit, back) is Standing.REFUSED
    assert back.engine is not None
    assert (back.engine.is_on_probation, back.engine.served) == (False, first.revision[:12])
    assert back.engine.receipt is not None
    assert back.engine.receipt.outcome == "rolled_back"


async def test_receipts_of_others_are_passed_over(engine: Engine) -> None:
    wanted = of(document(engine.world.model("chat")))
    await engine.push(wanted)
    for _ in range(12):
        await reached(engine.world.reconciler.reload("signal", "SIGHUP"))
    state = await engine.state()
    assert state.engine is not None
    assert [each.id for each in state.engine.receipts] == ["r1"]


async def test_a_hold_and_its_end(engine: Engine) -> None:
    first = of(document(engine.world.model("chat")))
    await engine.push(first)
    engine.world.steering.hold("uid:0")
    edit = of(document(engine.world.model("chat", max_batch=7)), 2)
    held = await engine.push(edit, first.revision)
    assert held.engine is not None
    assert held.engine.receipt is not None
    assert held.engine.receipt.outcome == "rejected"
    assert ": HRT-1018: " in held.engine.receipt.why
    assert held.engine.hold is not None
    assert held.engine.hold.endswith("by uid:0")
    assert standing(edit, held) is Standing.REFUSED
    resumed = engine.world.steering.resume("uid:0")
    assert resumed is not None
    await reached(resumed)
    after = await engine.state()
    assert standing(edit, after) is Standing.SERVES
    assert after.engine is not None
    assert after.engine.hold is None


async def test_a_way_back_by_hand_is_seen(engine: Engine) -> None:
    first = of(document(engine.world.model("chat")))
    await engine.push(first)
    edit = of(document(engine.world.model("chat", max_batch=7)), 2)
    assert standing(edit, await engine.push(edit, first.revision)) is Standing.SERVES
    await reached(engine.world.steering.rollback(None, "uid:0"))
    back = await engine.state()
    assert standing(edit, back) is Standing.WANTS
    assert back.engine is not None
    assert standing(edit, await engine.push(edit, back.engine.desired)) is Standing.SERVES


async def test_a_bare_document_serves_nothing_and_a_model_takes_its_place(engine: Engine) -> None:
    """As a pod starts: with listeners and no model."""
    bare = of(document())
    await reached(engine.world.reconciler.put(Push(Content.of(bare.document.encode(), "first")), "start"))
    state = await engine.state()
    assert state.engine is not None
    assert (state.engine.served, state.engine.is_serving) == (None, False)
    wanted = of(document(engine.world.model("chat")))
    assert decide(wanted, [state]).push == ("chat-a",)
    assert standing(wanted, await engine.push(wanted, state.engine.desired)) is Standing.SERVES


async def test_an_engine_that_dies_again_and_again(engine: Engine) -> None:
    """The receipt was good; what became of it later is told by the model."""
    wanted = of(document(engine.world.model("chat")))
    await engine.push(wanted)
    engine.world.stage.order("load", "fail", where={"role": "engine"}, code="HRT-1016", message="no memory")
    unit = engine.world.unit("chat")
    unit.deaths = [time.monotonic()] * 5  # it died as often a moment ago
    os.kill(unit.serving.pids["engine"], signal.SIGKILL)
    await until(lambda: engine.world.state("chat") == "failed", "it was given up")
    state = await engine.state()
    assert standing(wanted, state) is Standing.CHANGES
    assert state.engine is not None
    assert (state.engine.served, state.engine.has_served) == (None, False)
    assert "chat failed" in str(state.engine.models[0].trouble)


async def test_a_plan_changes_nothing(engine: Engine) -> None:
    first = of(document(engine.world.model("chat")))
    await engine.push(first)
    edit = of(document(engine.world.model("chat", max_batch=7)), 2)
    plan = await engine.engines.plan(engine.pod, edit, engine.secret)
    assert (plan.outcome, plan.models[0].action) == ("changes", "update")
    first_change = plan.models[0].changes[0]
    assert (first_change.field, first_change.old, first_change.new, first_change.kind) == ("max_batch", 64, 7, "live")
    bad = await engine.engines.plan(engine.pod, of("models: ["), engine.secret)
    assert bad.outcome == "rejected"
    assert len(engine.world.reconciler.receipts.all()) == 1


# --- what can be wrong with the other side ------------------------------------------------------------


async def test_whoever_is_not_the_pod_is_told_nothing(engine: Engine) -> None:
    wanted = of(document(engine.world.model("chat")))
    for wrong, words in (
        ({**SECRET, CA_CERT: OTHER[CA_CERT]}, "it cannot be asked: its certificate is not trusted: unable to get"),
        ({**SECRET, ADMIN_KEY: OTHER[ADMIN_KEY]}, "it answered 401: The API key is not valid here."),
        ({**SECRET, CA_CERT: b"nonsense"}, "the Secret of chat is not usable: no start line"),
        ({CA_CERT: SECRET[CA_CERT]}, "the Secret of chat has no admin.key"),
    ):
        (state,) = await engine.engines.observe([engine.pod], wrong, wanted.ref)
        assert state.engine is None
        assert str(state.error).startswith(words)
        with pytest.raises(EngineError):
            await engine.engines.push(engine.pod, wanted, wrong, None)
    neighbour = Ref("serving", "other", "uid-other")
    (state,) = await engine.engines.observe([engine.pod], SECRET, neighbour)
    assert state.engine is None
    assert "Hostname mismatch" in str(state.error)
    assert engine.world.reconciler.receipts.all() == ()


async def test_pods_that_do_not_run_or_are_not_there_cost_the_others_nothing(engine: Engine) -> None:
    pods = [
        pod("chat-b", podIP=""),
        pod("chat-c", podIP="127.0.0.99"),
        engine.pod,
        pod("chat-d", phase="Failed"),
    ]
    states = await engine.engines.observe(pods, engine.secret, Ref.of(body()))
    assert [each.engine is not None for each in states] == [False, False, True, False]
    assert states[0].error is not None
    assert states[0].error.startswith("it does not run yet; ")
    assert str(states[1].error).startswith("it cannot be asked: 127.0.0.99:")
    assert str(states[1].error).endswith(": Connection refused")
    assert states[3].error == "it is on its way out"


def answering(make: Any) -> Starlette:
    async def answer(request: Request) -> Response:
        return make(request)

    return Starlette(routes=[Route("/admin/v1/{rest:path}", answer, methods=["GET", "PUT"])])


STRANGE = [
    lambda _: Response(b"<html>", status_code=502),
    lambda _: Response(b"[]", media_type="application/json"),
    lambda _: JSONResponse({"error": "no"}, status_code=500),
    lambda _: JSONResponse({}),
    lambda _: JSONResponse({"receipts": [7], "models": {"chat": 7}, "revision": 3}),
    lambda _: JSONResponse({"id": "r1", "outcome": []}),
    lambda _: JSONResponse({"id": "r1", "problems": 7, "outcome": "changes", "models": [7]}),
    lambda _: Response(b"[" * 100_000, media_type="application/json"),
    lambda _: Response(b'{"outcome": "changes", "models": []}', headers={"content-encoding": "gzip"}),
    lambda _: Response(status_code=302, headers={"location": "https://127.0.0.1:1/"}),
]


@pytest.mark.parametrize("make", STRANGE)
async def test_an_answer_that_is_none_stands_in_the_state(make: Any, tmp_path: Path) -> None:
    async with secured(answering(make), tmp_path) as port, Engines(port=port) as engines:
        there = pod(podIP="127.0.0.1")
        (state,) = await engines.observe([there], SECRET, Ref.of(body()))
        assert state.engine is None
        assert state.error
        with pytest.raises(EngineError):
            await engines.push(there, of("models: []"), SECRET, None)
        with pytest.raises(EngineError):
            await engines.plan(there, of("models: []"), SECRET)


@pytest.mark.parametrize(
    ("slow", "long", "limit_s", "words"),
    [("status", "nothing", 0.2, "did not answer in time"), ("nothing", "receipts", 10.0, "longer than 16777216 bytes")],
)
async def test_an_answer_that_never_comes_or_is_far_too_long(
    slow: str, long: str, limit_s: float, words: str, tmp_path: Path
) -> None:
    never = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"].endswith(slow):
            await never.wait()
        for _ in range(20 if scope["path"].endswith(long) else 0):
            await send({"type": "http.response.body", "body": b" " * (1 << 20), "more_body": True})
        await send({"type": "http.response.body", "body": b'{"receipts": []}'})

    limits = Limits(answer_s=limit_s)
    async with secured(app, tmp_path) as port, Engines(limits, port) as engines:
        (state,) = await engines.observe([pod(podIP="127.0.0.1")], SECRET, Ref.of(body()))
        never.set()
        assert state.engine is None
        assert words in str(state.error)


async def test_many_pods_that_hang_are_in_nobody_elses_way(engine: Engine) -> None:
    """A healthy pod is not told to be unreachable because a hundred others are."""
    port = engine.engines._port
    met, given_up, all_met = 0, 0, asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met, given_up
        met += 1
        if met == MOST_AT_ONCE:
            all_met.set()
        while await reader.read(1024):
            pass
        given_up += 1
        writer.close()

    hosts = [f"127.9.0.{number}" for number in range(1, MOST_AT_ONCE + 9)]
    async with contextlib.AsyncExitStack() as servers:
        for host in hosts:
            await servers.enter_async_context(await asyncio.start_server(hang, host, port))
        pods = [pod(f"bad-{host}", podIP=host) for host in hosts]
        bad = asyncio.create_task(engine.engines.observe(pods, SECRET, Ref.of(body())))
        await all_met.wait()
        (state,) = await engine.engines.observe([engine.pod], SECRET, Ref.of(body()))
        assert state.engine is not None, state.error
        assert given_up == 0
        bad.cancel()
        await asyncio.wait([bad])


async def test_ended_engines_ask_nobody() -> None:
    (state,) = await Engines().observe([pod()], SECRET, Ref.of(body()))
    assert state.error == "the operator is ending"
