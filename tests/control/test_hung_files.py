"""Files on a mount that is gone: who looks at them waits, and nobody else; the end does not wait at all."""

import asyncio
import dataclasses
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.played.world import content, document, reached, until

from halogend.config.codes import Code
from halogend.control import acceptance, access, asks, doors, planning, rereading
from halogend.control.acceptance import Source
from halogend.control.planning import Given


class Mount:
    """The files of a model named `far` answer once `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.looks = 0


@pytest.fixture
def mount(monkeypatch):
    made, gather = Mount(), planning.gather

    def slow(wanted, *rest):
        if any(model.name == "far" for model in wanted.models):
            made.looks += 1
            made.answers.wait()
        return gather(wanted, *rest)

    monkeypatch.setattr(planning, "gather", slow)
    yield made
    made.answers.set()


def key_file(path: Path, value: str) -> dict[str, object]:
    path.write_text(value)
    path.chmod(0o600)
    return {"auth": {"keys": [{"name": "team", "file": str(path)}]}}


async def test_a_plan_that_hangs_holds_up_neither_a_reload_nor_a_key(serving, mount, tmp_path):
    world = await serving()
    far = Given(content(document(world.model("a"), world.model("far"))), "wanted.yaml")
    plan = world.spawned(world.reconciler.plan(far))
    await until(lambda: mount.looks, "the plan looks")
    server = key_file(tmp_path / "key", "first-value-0123456789")
    assert (await world.apply(world.model("a", max_batch=7), server=server)).outcome == "applied"
    key_file(tmp_path / "key", "second-value-0123456789")
    assert (await reached(world.reconciler.reread(tmp_path / "key"))).outcome == "applied"
    assert not plan.done()
    mount.answers.set()
    assert (await plan)["outcome"] == "changes"


async def test_a_key_does_not_wait_for_a_document_and_an_older_one_does_not_come_back_with_it(serving, mount, tmp_path):
    world = await serving()
    server = key_file(tmp_path / "key", "first-value-0123456789")
    await world.apply(world.model("a"), server=server)
    taken, prepare = [], world.sockets.prepare

    async def seen(wanted, access):
        taken.append(access.keys)
        return await prepare(wanted, access)

    world.sockets.prepare = seen
    edit = world.edit(document(world.model("a"), world.model("far"), server=server))
    await until(lambda: mount.looks, "the edit looks")
    key_file(tmp_path / "key", "second-value-0123456789")
    assert (await reached(world.reconciler.reread(tmp_path / "key"))).outcome == "applied"
    assert edit.outcome is None
    mount.answers.set()
    assert (await reached(edit)).outcome == "applied"
    assert mount.looks == 2
    assert len(taken) == 2
    assert taken[0] == taken[1]


async def test_an_edit_whose_files_do_not_answer_lets_a_newer_one_pass_and_does_not_undo_it(
    serving, mount, monkeypatch
):
    monkeypatch.setattr(asks, "_PATIENCE_S", 0.05)
    world = await serving()
    far = world.edit(document(world.model("a"), world.model("far")))
    await until(lambda: mount.looks, "it looks")
    newer = await world.apply(world.model("a", max_batch=7))
    assert (newer.outcome, far.outcome) == ("applied", None)
    mount.answers.set()
    await reached(far)
    assert far.outcome == "superseded"
    assert world.unit("a").active.config.max_batch == 7


async def test_a_source_that_does_not_answer_holds_up_no_document_that_is_handed_in(serving, monkeypatch):
    monkeypatch.setattr(asks, "_PATIENCE_S", 0.05)
    world = await serving()
    answers, read = threading.Event(), world.reconciler.source.read
    seen = []

    def slow():
        answers.wait()
        return read()

    source = dataclasses.replace(world.reconciler.source, read=slow, seen=seen.append)
    world.reconciler.source = source
    edit = world.edit(document(world.model("a", max_batch=3)))
    given = Given(content(document(world.model("a", max_batch=7))), "kept")
    assert (await reached(world.reconciler.apply(given, "rollback", "test"))).outcome == "applied"
    answers.set()
    await reached(edit)
    assert (edit.outcome, seen) == ("superseded", [])
    assert world.unit("a").active.config.max_batch == 7


async def test_so_many_edits_whose_files_do_not_answer_are_looked_at_side_by_side(serving, mount, monkeypatch):
    monkeypatch.setattr(asks, "_PATIENCE_S", 0.01)
    world = await serving()
    edits = [world.edit(document(world.model("a"), world.model("far", max_batch=n))) for n in range(1, 12)]
    await until(lambda: mount.looks == 8, "as many as may")
    last = world.edit(document(world.model("a", max_batch=7)))
    assert last.outcome is None
    mount.answers.set()
    for each in [*edits, last]:
        await reached(each)
    assert last.outcome in ("applied", "unchanged")  # one before it may have read the same
    assert world.unit("a").active.config.max_batch == 7


async def test_files_that_never_answer_are_a_problem_and_the_next_edit_is_taken(serving, mount, monkeypatch):
    world = await serving()
    far = world.model("far")
    with monkeypatch.context() as short:  # whose files answer has the limit that it has elsewhere
        short.setattr(planning, "LOOK_LIMIT_S", 0.05)
        refused = await world.apply(world.model("a"), far)
    assert refused.outcome == "rejected"
    (problem,) = refused.problems
    assert (problem.code, problem.file) == (Code.CHECKPOINT_UNREADABLE, "config.yaml")
    assert "did not answer within 0.05 s" in problem.message
    assert far["model"] in problem.message
    assert (await world.apply(world.model("a", max_batch=7))).outcome == "applied"


async def test_keys_change_beside_files_that_do_not_answer_and_those_stay_in_force(serving, monkeypatch, tmp_path):
    world = await serving()
    paths = [tmp_path / "near", tmp_path / "far"]
    keys = [key_file(path, f"{path.name}-value-0123456789")["auth"]["keys"][0] for path in paths]
    server = {"auth": {"keys": [{**key, "name": path.name} for key, path in zip(keys, paths, strict=True)]}}
    await world.apply(world.model("a"), server=server)
    taken, prepare = [], world.sockets.prepare

    async def seen(wanted, given):
        taken.append({each.name: each.digest for each in given.keys})
        return await prepare(wanted, given)

    world.sockets.prepare = seen
    await reached(world.reconciler.reread(paths[1]))
    before = world.reconciler.signatures()
    read = access.read_key
    monkeypatch.setattr(access, "read_key", lambda path: read(path) if path.endswith("near") else pytest.fail("hangs"))
    key_file(paths[0], "another-value-0123456789")
    receipt = await reached(world.reconciler.reread(paths[0], frozenset({paths[1]})))
    assert (receipt.outcome, [each["field"] for each in receipt.server_changes]) == ("applied", [f"input {paths[0]}"])
    assert taken[-1].keys() == {"near", "far"}
    assert world.reconciler.signatures()[paths[1]] == before[paths[1]]


async def test_key_files_that_never_answer_are_a_problem_of_that_change_alone(serving, monkeypatch, tmp_path):
    world = await serving()
    await world.apply(world.model("a"), server=key_file(tmp_path / "key", "first-value-0123456789"))
    monkeypatch.setattr(rereading, "LOOK_LIMIT_S", 0.05)
    answers = threading.Event()
    monkeypatch.setattr(rereading, "look", lambda *_, **__: answers.wait())
    refused = await reached(world.reconciler.reread(tmp_path / "key"))
    answers.set()
    assert (refused.outcome, refused.problems[0].code) == ("rejected", Code.KEY_FILE)
    assert (await world.apply(world.model("a", max_batch=7))).outcome == "applied"


async def test_without_a_document_key_files_that_never_answer_leave_the_default_doors(serving, monkeypatch, tmp_path):
    world, answers, looks = await serving(), threading.Event(), iter((True, False))
    monkeypatch.setattr(doors, "LOOK_LIMIT_S", 0.05)

    def never(server):
        monkeypatch.setattr(doors, "LOOK_LIMIT_S", 60.0)  # of the look that is answered
        answers.wait()

    text = document(world.model("a"), server={"port": 9001, **key_file(tmp_path / "key", "first-value-0123456789")})
    real = doors.look
    monkeypatch.setattr(doors, "look", lambda server: never(server) if next(looks) else real(server))
    source = Source("config.yaml", {}, lambda: content(text))
    assert await doors.open_doors(source, world.sockets, world.reconciler.machine, asyncio.Lock()) is None
    answers.set()
    assert world.sockets.serving.port == 8000


STUCK = """
import asyncio, threading
from halogend.control.aside import aside
try:
    asyncio.run(aside(threading.Event().wait, 0.05))
except TimeoutError:
    print("late")
"""


def test_a_process_ends_though_a_look_does_not():
    done = subprocess.run([sys.executable, "-c", STUCK], check=False, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "late\n", "")


async def test_a_source_that_hangs_rejects_its_reload_and_is_read_beside_the_loop(serving, monkeypatch):
    world, answers = await serving(), threading.Event()
    source = world.reconciler.source

    def read():
        answers.wait()
        return content(document(world.model("a", max_batch=5)))

    world.reconciler.source = Source("/mnt/config.yaml", {}, read)
    with monkeypatch.context() as short:  # a source that answers has the limit that it has elsewhere
        short.setattr(acceptance, "READ_LIMIT_S", 0.05)
        receipt = world.reconciler.reload("api", "x")
        assert await world.ask("a")  # meanwhile
        await reached(receipt)
        (problem,) = receipt.problems
        assert (problem.code, "did not answer within" in problem.message) == (Code.SOURCE_UNREADABLE, True)
        plan = await world.reconciler.plan()
    assert [each["code"] for each in plan["problems"]] == [Code.SOURCE_UNREADABLE]
    answers.set()
    world.reconciler.source = source
    assert (await world.apply(world.model("a", max_batch=7))).outcome == "applied"
