"""One change at a time: what is accepted, what is undone, what a receipt says meanwhile."""

import os
import signal
import sys

import pytest
import yaml
from support.played.stage import WARMUP
from support.played.world import content, document, failure_of, reached, until

from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.control import generation, replica_changes
from halogend.control.receipts import Milestone
from halogend.control.startup import Startup


async def test_l2_the_same_document_with_keys_reordered_and_comments_changed_loads_nothing(serving):
    world = await serving()
    before, loads = world.dump(), world.stage.loads()
    tree = yaml.safe_load(world.text)
    tree["models"] = [dict(reversed(model.items())) for model in tree["models"]]
    text = "# the same\n" + yaml.safe_dump(dict(reversed(tree.items())), sort_keys=False)
    assert text != world.text
    receipt = await reached(world.edit(text))
    assert receipt.outcome == "unchanged"
    assert world.stage.loads() == loads
    await world.comes_back_to(before, "active")
    assert world.status()["settled"]


# --- L3: a failure at each stage ----------------------------------------------------------------------

REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}


def _order(point, role, **order):
    def inject(world, _):
        world.stage.order(point, order.pop("do"), where={"role": role, **order.pop("where", {})}, **order)

    return inject


def _no_program(_, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")


def _stands_still(world, monkeypatch):
    """Most of the limit is over as it begins."""
    judge = Startup.judge
    monkeypatch.setattr(Startup, "judge", lambda self, pulses, now, *rest: judge(self, pulses, now + 4, *rest))
    _order("load", "engine", do="stick")(world, monkeypatch)


def _other_version(world, _):
    world.house.host.more["PLAYED_VERSION"] = "99"


def _files_change(world, monkeypatch):
    """Both workers are ready, and between the two reads somebody put other files there."""
    start = generation.Generation.start

    async def start_and_touch(self):
        await start(self)
        os.utime(world.folder / "b.gguf", ns=(1, 1))

    monkeypatch.setattr(generation.Generation, "start", start_and_touch)


FIRST_TOKEN = {"where": {"prompt": WARMUP}}
LOADS = {
    "spawn": (_no_program, "could not be started"),
    "another version of the wire": (_other_version, "speaks version 99"),
    "text refuses": (_order("load", "text", **REFUSED), "no memory"),
    "engine refuses": (_order("load", "engine", **REFUSED), "no memory"),
    "text killed": (_order("load", "text", do="die", signal=signal.SIGKILL), "SIGKILL; somebody sent it"),
    "engine lost its file": (
        _order("load", "engine", do="die", signal=signal.SIGBUS),
        "SIGBUS; a file that it had mapped",
    ),
    "engine killed": (_order("load", "engine", do="die", signal=signal.SIGKILL), "SIGKILL; somebody sent it"),
    "engine crashes": (_order("load", "engine", do="crash", message="bug"), "status 1"),
    "engine stands still": (_stands_still, "no progress"),
    "text ends at ready": (_order("ready", "text", do="end", status=5), "HRT-1010"),
    "engine ends at ready": (_order("ready", "engine", do="end", status=5), "HRT-1010"),
    "first token fails": (_order("generate", "engine", **REFUSED, **FIRST_TOKEN), "no memory"),
    "engine killed at first token": (
        _order("generate", "engine", do="die", signal=9, **FIRST_TOKEN),
        "SIGKILL; somebody sent it",
    ),
    "files change": (_files_change, "changed while it was loaded"),
    "text killed at first token": (_order("submit", "text", do="die", signal=9, times=1), "HRT-1010"),
}


@pytest.mark.parametrize("stage", LOADS)
async def test_l3_a_load_that_fails_leaves_all_as_it_was(serving, monkeypatch, stage):
    inject, said = LOADS[stage]
    world = await serving(load={"progress_timeout_s": 5})
    before = world.dump()
    inject(world, monkeypatch)
    receipt = await world.apply(world.model("a", "b", load={"progress_timeout_s": 5}))
    assert receipt.outcome == "failed"
    assert said in receipt.models["a"].error
    await world.comes_back_to(before)
    assert not world.status()["settled"]
    assert failure_of(await world.ask("a")) is None


async def test_the_tail_of_a_crashed_process_is_kept_in_the_log(serving):
    world = await serving()
    world.stage.order("load", "crash", where={"role": "engine"}, message="a bug of ours")
    await world.apply(world.model("a", "b"))
    assert b"RuntimeError: a bug of ours" in world.log.getvalue()


@pytest.mark.parametrize("role", ["text", "engine"])
@pytest.mark.parametrize("how", ["refused", "never answered", "killed"])
async def test_l3_a_live_change_that_is_not_prepared_changes_nothing_anywhere(serving, monkeypatch, role, how):
    monkeypatch.setattr(replica_changes, "_PREPARE_LIMIT_S", 0.3)
    world = await serving()
    before = world.dump()
    if how == "refused":
        world.stage.order("prepare", where={"role": role}, **REFUSED)
    elif how == "never answered":
        world.stage.hold("prepare", role=role)
    else:
        world.stage.order("prepare", "die", where={"role": role}, signal=signal.SIGKILL)
    receipt = await world.apply(world.model("a", max_batch=7, max_prompt_len=9, max_queue=5, aliases=["b"]))
    assert receipt.outcome == "failed"
    assert world.stage.at("commit", "text") == world.stage.at("commit", "engine") == []
    if how != "killed":
        await world.comes_back_to(before)
    await until(lambda: world.state("a") == "serving", "it serves")
    assert world.router.route("a").settings == before["routes"]["a"][0]
    assert world.unit("a").serving.engine_limits == before["limits"]["a"]
    assert failure_of(await world.ask("a")) is None


@pytest.mark.parametrize("step", ["prepare", "commit"])
async def test_l3_listeners_that_refuse_leave_all_as_it_was(serving, step):
    world = await serving()
    before = world.dump()
    problem = Problem("HRT-1008", "the port is taken", "take another", "config.yaml", path="server.port")
    setattr(world.sockets, f"refuse_{step}", problem)
    receipt = await world.apply(world.model("a", "b"), world.model("c"), server={"port": 9000})
    assert receipt.outcome == "rejected"
    assert [each.code for each in receipt.problems] == ["HRT-1008"]
    await world.comes_back_to(before)
    assert world.stage.loads() == 1


async def test_a_document_that_cannot_be_read_or_is_wrong_is_rejected_and_touches_nothing(serving):
    world = await serving()
    before = world.dump()
    world.text = None
    receipt = await reached(world.reconciler.reload("signal", "SIGHUP"))
    assert (receipt.outcome, receipt.problems[0].code) == ("rejected", "HRT-1017")
    receipt = await reached(world.edit("models: ["))
    assert receipt.outcome == "rejected"
    missing = {"name": "b", "model": "/nowhere/b.gguf"}
    receipt = await world.apply(world.model("a"), missing)
    assert (receipt.outcome, receipt.problems[0].code) == ("rejected", "HCK-1010")
    await world.comes_back_to(before)
    assert not world.status()["settled"]


# --- what receipts and status say ---------------------------------------------------------------------


async def test_l11_a_receipt_stays_open_until_the_model_serves(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b")))
    await load.reached()
    assert receipt.outcome is None
    assert receipt.has(Milestone.ACCEPTED)
    assert not receipt.has(Milestone.SERVING)
    shown = world.status()
    assert not shown["settled"]
    assert shown["revision"]["desired"] != shown["revision"]["active"]
    assert shown["models"]["a"]["loading"]["generation"] == 2
    assert shown["models"]["a"]["state"] == "serving"
    load.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert world.status()["settled"]
    assert world.status()["models"]["a"]["path"].endswith("b.gguf")


async def test_l11_a_receipt_stays_open_until_the_load_failed(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b")))
    await load.reached()
    assert receipt.outcome is None
    load.release("fail", code="HRT-1016", message="no memory")
    await reached(receipt)
    assert receipt.outcome == "failed"
    step = receipt.view()["models"][0]["steps"][0]
    assert (step["name"], "no memory" in step["error"]) == ("load", True)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_reload_of_content_that_is_on_its_way_waits_with_it(serving, fails):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a", "b")))
    await load.reached()
    second = world.reconciler.reload("signal", "SIGHUP")
    await reached(second, Milestone.ACCEPTED)
    assert second.outcome is None
    load.release(**(REFUSED if fails else {}))
    await reached(first)
    await reached(second)
    assert first.outcome == second.outcome == ("failed" if fails else "applied")
    assert world.stage.loads("b") == 1
    assert world.status()["settled"] is not fails


async def test_a_reload_while_an_old_generation_drains_serves_at_once_and_closes_with_the_drain(serving):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    first = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    second = await reached(world.reconciler.reload("signal", "SIGHUP"), Milestone.SERVING)
    assert (first.outcome, second.outcome) == ("applied", "unchanged")
    assert not second.has(Milestone.CLOSED)
    assert world.status()["settled"]
    slow.release("finish")
    await reached(first)
    await reached(second)
    answer.close()


async def test_a_failed_edit_is_tried_again_by_an_explicit_reload(serving):
    world = await serving()
    world.stage.order("load", times=1, where={"role": "engine", "model": "b"}, **REFUSED)
    assert (await world.apply(world.model("a", "b"))).outcome == "failed"
    again = await reached(world.reconciler.reload("signal", "SIGHUP"))
    assert again.outcome == "applied"
    assert world.stage.loads("b") == 2
    assert world.status()["settled"]


async def test_older_bytes_of_a_file_watch_never_overwrite_newer_ones(serving):
    world = await serving()
    older, newer = document(world.model("a", "b")), document(world.model("a", "c"))
    world.text = newer
    receipt = await reached(world.reconciler.reload("file", "file", content(older)))
    assert receipt.outcome == "applied"
    assert world.status()["models"]["a"]["path"].endswith("c.gguf")
    assert world.stage.loads("b") == 0


@pytest.mark.parametrize("now", [None, "", " \n"])
async def test_what_a_file_watch_saw_counts_where_the_file_is_gone_or_empty_by_now(serving, now):
    world = await serving()
    seen = content(document(world.model("a", "b")))
    world.text = now
    receipt = await reached(world.reconciler.reload("file", "file", seen))
    assert receipt.outcome == "applied"
    assert world.status()["models"]["a"]["path"].endswith("b.gguf")


async def test_a_change_that_ends_while_listeners_are_committed_is_not_taken_for_done(serving):
    """The plan is made of what is there when it is carried out, not of what was there before."""
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b", times=1)
    first = world.edit(document(world.model("a", "b")))
    await load.reached()
    world.sockets.may_commit.clear()
    world.sockets.in_commit.clear()
    second = world.edit(document(world.model("a", "b"), server={"port": 9000}))
    await world.sockets.in_commit.wait()
    load.release(**REFUSED)
    await reached(first)
    assert first.outcome == "failed"
    world.sockets.may_commit.set()
    await reached(second)
    assert second.outcome == "applied"
    assert world.status()["models"]["a"]["path"].endswith("b.gguf")


async def test_an_older_receipt_that_ends_late_does_not_turn_the_active_document_back(serving):
    world = await serving()
    await world.apply(world.model("a"), world.model("c"))
    prepare = world.stage.hold("prepare", role="engine", model="a")
    world.edit(document(world.model("a", max_batch=7), world.model("c")))
    await prepare.reached()
    removal = world.edit(document(world.model("c")))
    await reached(removal, Milestone.ACCEPTED)
    newest = await world.apply(world.model("c", max_batch=9))
    assert (newest.outcome, removal.outcome) == ("applied", None)
    prepare.release()
    await reached(removal)
    assert removal.outcome == "applied"
    assert world.reconciler.active is world.reconciler.accepted
    assert "max_batch: 9" in world.reconciler.document()[0]
    await until(lambda: world.status()["settled"], "the removed model's memory is back")


async def test_output_that_nobody_reads_breaks_nothing(serving):
    from halogend.obs import log

    world = await serving()
    unread, written = os.pipe()
    os.close(unread)
    with os.fdopen(written, "w", closefd=False) as broken:
        log.configure_daemon(routine=broken, errors=broken)
        object.__setattr__(world.house.host, "stderr", broken.buffer)
        try:
            assert (await world.apply(world.model("a", "b"))).outcome == "applied"
            world.stage.order("load", "crash", where={"role": "engine"}, message="a bug of ours")
            assert (await world.apply(world.model("a", "c"))).outcome == "failed"
        finally:
            object.__setattr__(world.house.host, "stderr", world.log)
            log.structlog.reset_defaults()
            os.dup2(os.open(os.devnull, os.O_WRONLY), written)  # so that what is still held can be written
    assert failure_of(await world.ask("a")) is None


async def test_a_request_that_comes_as_soon_as_a_listener_is_there_waits_for_its_model(world):
    world = await world()
    world.sockets.may_commit.clear()
    receipt = world.edit(document(world.model("a")))
    await world.sockets.in_commit.wait()
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "it waits")
    world.sockets.may_commit.set()
    await reached(receipt)
    assert failure_of(await asked) is None


async def test_names_of_a_document_whose_listeners_cannot_be_had_stay_unknown(serving):
    world = await serving()
    world.sockets.refuse_commit = Problem(Code.PORT_BUSY, "taken", path="server.port")
    receipt = await world.apply(world.model("a"), world.model("c"))
    assert receipt.outcome == "rejected"
    assert await world.asks("c") == "model_not_found"
    assert failure_of(await world.ask("a")) is None
