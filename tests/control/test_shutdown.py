"""The end: whatever goes on is cancelled, and no process, task or socket is left.

The fixture `world` looks for what is left after each test of this directory; here the end comes at the
worst moments.
"""

import asyncio
import os
import signal
import threading
from dataclasses import replace

import pytest
import yaml
from support.played.world import World, collect, document, failure_of, reached, until
from support.ports import free_port

from halogend import daemon
from halogend.control import planning, recover, replica
from halogend.control.receipts import Milestone
from halogend.obs.exits import Exit

REPLACE = {"reload": {"strategy": "replace"}}


async def _ends(world):
    await world.reconciler.stop()
    await until(lambda: not world.children(), "what was killed is gone")


async def test_the_end_during_a_load(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    world.edit(document(world.model("a", "b"), world.model("c")))
    await load.reached()
    await _ends(world)


@pytest.mark.parametrize("point", ["load", "ready", "generate"])
async def test_the_end_at_each_point_of_a_load(world, point):
    world = await world()
    hold = world.stage.hold(point, role="engine")
    world.edit(document(world.model("a")))
    await hold.reached()
    await _ends(world)


async def test_the_end_while_a_superseded_load_does_not_let_itself_be_stopped(serving, monkeypatch):
    monkeypatch.setattr(replica, "_STOP_GRACE_S", 1000.0)
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    world.edit(document(world.model("a", "b")))
    (await load.reached()).say("deafen")
    await world.apply(world.model("a", "c"), until=Milestone.ACCEPTED)
    loading = world.house.units["a"].loading
    await until(lambda: loading.replicas[0].state is replica.State.STOPPED, "the superseded load is being stopped")
    await until(lambda: len(world.children()) == 3, "its text process is gone, its engine is waited for")
    await _ends(world)


async def test_a_generation_that_does_not_stop_is_killed_after_its_grace(serving, monkeypatch):
    monkeypatch.setattr(replica, "_STOP_GRACE_S", 0.05)
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a", "b")))
    (await load.reached()).say("deafen")
    second = await world.apply(world.model("a", "c"))
    await reached(first)
    assert second.outcome == "applied"
    assert set(world.house.ledger.view()) == {"a#3"}


async def test_the_end_while_an_old_generation_drains(serving):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    await _ends(world)
    assert failure_of(await collect(answer)) == "engine_died"


async def test_the_end_while_a_replace_drains(serving):
    world = await serving(**REPLACE)
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    world.edit(document(world.model("a", "b", **REPLACE)))
    await until(lambda: world.unit("a").reclaims, "it drains")
    await _ends(world)
    answer.close()


async def test_the_end_between_a_death_and_the_next_try(serving, monkeypatch):
    monkeypatch.setattr(recover, "BACKOFF_S", (1000.0,))
    world = await serving()
    os.kill(world.unit("a").serving.pids["text"], signal.SIGKILL)
    await until(lambda: world.unit("a").deaths, "it waits to try again")
    await _ends(world)


async def test_the_end_during_a_live_change(serving):
    world = await serving()
    prepare = world.stage.hold("prepare", role="engine")
    world.edit(document(world.model("a", max_batch=7)))
    await prepare.reached()
    await _ends(world)


# --- the daemon itself ------------------------------------------------------------------------------------


@pytest.fixture
async def run(tmp_path):
    """A factory: a whole daemon in this process, with played workers. Gives (world, daemon, task)."""
    made = []

    async def make(text=None, *, stop_drain_s=daemon.STOP_DRAIN_S, **model):
        world = World(tmp_path, 0)
        await world.stage.open()
        port = free_port()
        config = tmp_path / "config.yaml"
        config.write_text(text or document(world.model("a", **model), server={"port": port}))
        admin = f"unix:{tmp_path}/admin.sock"
        options = daemon.Options(config, admin, os.environ, stop_drain_s=stop_drain_s)
        whole = daemon.Daemon(options)
        object.__setattr__(whole._house, "host", replace(world.house.host))
        task = asyncio.create_task(whole.run())
        made.append((world, task))
        return world, whole, task

    yield make
    for world, task in made:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        assert await task in (Exit.DONE, Exit.NOTHING_SERVES, Exit.BAD_DOCUMENT)
        await world.stop()


def _first(whole):
    return whole.admin.receipts()[0]


async def test_sigterm_while_the_first_documents_files_do_not_answer_ends_at_once_with_0(run, monkeypatch):
    looks, answers = threading.Event(), threading.Event()

    def gather(*_):
        looks.set()
        answers.wait()

    monkeypatch.setattr(planning, "gather", gather)
    _, _, task = await run()
    await until(looks.is_set, "the first look")
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        async with asyncio.timeout(10):
            assert await task == 0
    finally:
        answers.set()


async def test_a_bad_first_document_ends_with_78_and_its_spare_worker_with_it(run, monkeypatch):
    """Which was started when the document was read, and imports yet."""
    answers, gather = threading.Event(), planning.gather

    def late(*arguments):
        answers.wait()
        return gather(*arguments)

    monkeypatch.setattr(planning, "gather", late)
    world, _, task = await run(model="/nowhere/a.gguf")
    spare = await world.stage.hold("import").reached()
    answers.set()
    async with asyncio.timeout(10):
        assert await task == Exit.BAD_DOCUMENT
    assert world.stage.pids == {spare.pid}
    assert not world.children()


async def test_sigterm_ends_the_spare_worker_too(run):
    world, whole, task = await run()
    await reached(await until(lambda: whole.admin.receipts() and _first(whole), "a receipt"))
    await until(lambda: whole._house.spare.view()["state"] == "ready", "a spare worker")
    assert len(world.children()) == 3
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0
    assert not world.children()


async def test_sigterm_during_the_first_load_ends_at_once_with_0(run):
    world, _, task = await run()
    load = await world.stage.hold("load", role="engine").reached()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await task == 0
    assert load.pid not in world.children()
    assert not world.children()
    assert not (world.folder / "admin.sock").exists()


async def test_sigterm_answers_requests_that_wait_for_a_load(run):
    world, whole, task = await run()
    await world.stage.hold("load", role="engine").reached()
    world.router = whole._router
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asked == "shutting_down"
    assert await task == 0


async def test_s9_sigterm_waits_for_a_stream_and_a_second_one_does_not(run):
    world, whole, task = await run()
    await reached(await until(lambda: whole.admin.receipts() and _first(whole), "a receipt"))
    world.router = whole._router
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: whole._router._closing, "it stops")
    assert await world.asks("a") == "shutting_down"
    assert not task.done()
    os.kill(os.getpid(), signal.SIGTERM)
    assert failure_of(await collect(answer)) == "shutting_down"
    assert await task == 0


@pytest.mark.parametrize(("stated_s", "drain_s"), [(0.05, 900), (None, 0.05)])
async def test_a_stop_waits_as_long_as_it_was_told_or_as_the_document_says(run, stated_s, drain_s):
    world, whole, task = await run(stop_drain_s=stated_s, reload={"drain_timeout_s": drain_s})
    await reached(await until(lambda: whole.admin.receipts() and _first(whole), "a receipt"))
    world.router = whole._router
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    await slow.reached()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(20):
        assert failure_of(await collect(answer)) == "shutting_down"
        assert await task == 0


async def test_listeners_of_a_document_that_comes_during_the_end_are_closed_too(run):
    world, whole, task = await run()
    await reached(await until(lambda: whole.admin.receipts() and _first(whole), "a receipt"))
    world.router = whole._router
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    await slow.reached()
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: whole._router._closing, "it stops")
    port = free_port()
    admin = f"unix:{world.folder}/other.sock"
    (world.folder / "config.yaml").write_text(document(world.model("a"), server={"port": port, "admin": admin}))
    await reached(whole.admin.reload("signal", "SIGHUP"))
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0
    assert failure_of(await collect(answer)) == "shutting_down"
    assert not list(world.folder.glob("*.sock"))
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_bad_document_at_the_start_ends_with_78_and_starts_nothing(run, capsys):
    world, _, task = await run("models: [")
    assert await task == Exit.BAD_DOCUMENT
    assert "HCF-" in capsys.readouterr().err
    assert not world.stage.pids


async def test_s4_a_start_at_which_no_model_can_be_loaded_ends_with_69(run):
    world, whole, task = await run()
    world.stage.order("load", "fail", where={"role": "engine"}, code="HRT-1016", message="no memory")
    async with asyncio.timeout(10):
        assert await task == Exit.NOTHING_SERVES
    assert _first(whole).outcome == "failed"
    assert not world.children()
    assert not (world.folder / "admin.sock").exists()


async def test_l4_a_busy_port_rejects_the_edit_and_the_old_listener_serves_on(run):
    world, whole, _ = await run()
    first = await until(lambda: whole.admin.receipts() and _first(whole), "a receipt")
    await reached(first)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    text = yaml.safe_load((world.folder / "config.yaml").read_text())
    old_port = text["server"]["port"]
    text["server"]["port"] = server.sockets[0].getsockname()[1]
    text["models"][0]["max_batch"] = 7
    (world.folder / "config.yaml").write_text(yaml.safe_dump(text))
    receipt = await reached(whole.admin.reload("api", "test"))
    assert (receipt.outcome, receipt.problems[0].code) == ("rejected", "HRT-1008")
    assert whole._house.units["a"].active.config.max_batch == 64
    _, writer = await asyncio.open_connection("127.0.0.1", old_port)
    writer.close()
    server.close()
