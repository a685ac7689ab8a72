"""A document that is handed in, in a played world: what it must match, whose it is, hold, drift, and the
source that takes pushes for its own."""

import json

import pytest
import yaml
from support.played.world import content, document, reached, until

from halogend.config.parts import Part, pack
from halogend.control import asks
from halogend.control.acceptance import Source
from halogend.control.history import Origin
from halogend.control.push import Push
from halogend.control.receipts import Milestone
from halogend.control.requests import RequestError
from halogend.control.source import Content, PushedSource, SourceError

EVERYWHERE = "0.0.0.0"  # noqa: S104  refused, and never bound


def pushed(text, *expects, origin=None):
    made = None if origin is None else Origin(uid=origin[0], generation=origin[1])
    return Push(Content.of(text.encode(), "pushed"), expects, made)


async def put(there, push, force=False):
    return await reached(there.steering.put(push, "key:ci", force=force))


def batch_of(there):
    return there.unit("a").active.config.max_batch


def refused(there, push):
    with pytest.raises(RequestError) as caught:
        there.steering.put(push, "key:ci")
    return caught.value


@pytest.fixture
async def there(serving):
    return await serving()


@pytest.fixture
def text(there):
    """Documents that differ in a live field."""
    return lambda size: document(there.model("a", max_batch=size))


async def test_a_put_applies_and_leaves_the_source_alone(there, text):
    receipt = await put(there, pushed(text(7), origin=("u", 3)))
    assert (receipt.outcome, receipt.trigger, receipt.actor, receipt.source) == ("applied", "put", "key:ci", "pushed")
    assert receipt.view()["origin"] == {"uid": "u", "generation": 3}
    assert batch_of(there) == 7
    assert there.status()["drift"] == {"receipt": receipt.id, "source_revision": there.reconciler.source_revision[:12]}
    assert there.stage.loads() == 1


async def test_metrics_get_vllms_names_by_an_edit_that_starts_nothing(there):
    model = there.model("a")
    for compat, is_there in (("vllm", True), ("off", False)):
        receipt = await put(there, pushed(document(model, server={"metrics_compat": compat})))
        assert receipt.outcome == "applied"
        assert (b"vllm:num_requests_running" in there.house.metrics.render()) is is_there
    assert there.stage.loads() == 1


async def test_the_newest_event_wins(there, text):
    await put(there, pushed(text(7)))
    await reached(there.edit(text(8)))
    assert (batch_of(there), there.status()["drift"]) == (8, None)
    await put(there, pushed(text(9)))
    assert batch_of(there) == 9
    await reached(there.reconciler.reload("api", "x"))  # the source, as it is
    assert (batch_of(there), there.status()["drift"]) == (8, None)


async def test_what_the_source_holds_as_well_is_no_drift(there, text):
    await put(there, pushed(text(64)))
    assert there.status()["drift"] is None


async def test_r7_a_bad_document_changes_nothing_and_names_its_places(there):
    before = there.dump()
    receipt = await put(there, pushed("models: []\nnonsense: 1\n"))
    assert receipt.outcome == "rejected"
    assert {(problem.file, problem.line) for problem in receipt.problems} >= {("pushed", 2)}
    empty = await put(there, pushed(""))
    assert [str(problem.code) for problem in empty.problems] == ["HCF-1003"]
    await there.comes_back_to(before)


async def test_a_body_may_be_json_and_several_files(there, text):
    as_json = json.dumps(yaml.safe_load(text(7)))
    assert (await put(there, pushed(as_json))).outcome == "applied"
    files = pack([Part("a.yaml", text(8).encode()), Part("b.yaml", b"server: {port: x}")])
    receipt = await put(there, Push(Content.of(files, "conf.d")))
    assert {problem.file for problem in receipt.problems} == {"conf.d/b.yaml"}
    assert batch_of(there) == 7


async def test_if_match(there, text):
    revision = there.reconciler.accepted.revision
    assert (await put(there, pushed(text(7), revision))).outcome == "applied"
    for expects in ((revision,), ("0" * 12, revision[:12])):
        error = refused(there, pushed(text(8), *expects))
        assert (error.code, error.param) == ("revision_mismatch", "If-Match")
        assert expects[0][:12] in error.message
        assert there.reconciler.accepted.revision[:12] in error.message
    short = there.status()["revision"]["desired"]
    assert (await put(there, pushed(text(8), "0" * 12, short))).outcome == "applied"
    assert (await put(there, pushed(text(9), "*"))).outcome == "applied"
    with pytest.raises(RequestError):
        await there.steering.plan_put(pushed(text(8), short))
    assert len(there.reconciler.receipts.all()) == 4


async def test_any_document_must_be_there_to_be_replaced(world):
    fresh = await world()
    error = refused(fresh, pushed(document(fresh.model("a")), "*"))
    assert (error.code, "no document yet" in error.message) == ("revision_mismatch", True)
    assert (await put(fresh, pushed(document(fresh.model("a"))))).outcome == "applied"


async def test_of_two_that_expect_the_same_the_second_is_superseded_when_its_turn_comes(there, text):
    revision = there.reconciler.accepted.revision
    first = there.steering.put(pushed(text(7), revision), "a")
    second = there.steering.put(pushed(text(8), revision), "b")
    await reached(first)
    await reached(second)
    assert (first.outcome, second.outcome) == ("applied", "superseded")
    assert [str(problem.code) for problem in second.problems] == ["HAP-1018"]
    assert batch_of(there) == 7


async def test_of_two_that_expect_the_same_the_second_waits_for_what_becomes_of_a_slow_first(there, text, monkeypatch):
    """Documents behind one that takes long are looked at all the same; what one must match is not decided yet."""
    monkeypatch.setattr(asks, "_PATIENCE_S", 0.01)
    revision = there.reconciler.accepted.revision
    there.sockets.in_commit.clear()
    there.sockets.may_commit.clear()
    first = there.steering.put(pushed(text(7), revision), "a")
    await there.sockets.in_commit.wait()
    second = there.steering.put(pushed(text(8), revision), "b")
    await until(lambda: not there.reconciler._asks._documents.qsize(), "both are looked at")
    there.sockets.may_commit.set()
    for receipt in (first, second):
        await reached(receipt)
    assert (first.outcome, second.outcome) == ("applied", "superseded")
    assert [str(problem.code) for problem in second.problems] == ["HAP-1018"]
    assert batch_of(there) == 7


async def test_an_older_generation_of_the_same_object_is_refused_also_after_a_restart(world, tmp_path):
    first = await world(folder=tmp_path / "w", state=tmp_path / "state")
    text = document(first.model("a"))
    await put(first, pushed(text, origin=("u", 7)))
    await put(first, pushed(text, origin=("u", 7)))  # once more: the answer was lost
    await put(first, pushed("models: [", origin=("u", 8)))  # refused, and yet the newest
    await put(first, pushed(text, origin=("v", 1)))
    await first.stop()
    (tmp_path / "w" / "stage").unlink(missing_ok=True)
    again = await world(folder=tmp_path / "w", state=tmp_path / "state")
    error = refused(again, pushed(text, origin=("u", 7)))
    assert (error.code, error.param) == ("stale_origin", "Halogen-Origin")
    assert "generation 8 was" in error.message
    assert again.reconciler.receipts.all()[0].origin == {"uid": "u", "generation": 7}
    for origin in (("u", 9), ("v", 1), ("new", 0)):
        assert (await put(again, pushed(text, origin=origin))).outcome in ("applied", "unchanged")


async def test_a_generation_that_was_too_high_by_mistake_is_taken_back_by_force(there, text):
    await put(there, pushed(text(7), origin=("u", 10**17)))
    right = pushed(text(8), origin=("u", 4))
    assert "?force=true" in refused(there, right).message
    assert (await there.steering.plan_put(right, force=True))["outcome"] == "changes"
    assert (await reached(there.steering.put(right, "x", force=True))).outcome == "applied"
    assert refused(there, pushed(text(8), origin=("u", 3))).code == "stale_origin"
    assert (await put(there, pushed(text(9), origin=("u", 5)))).outcome == "applied"


async def test_objects_that_were_silent_longest_are_forgotten_first(there):
    history = there.reconciler.history
    for number in range(70):
        history.came_from(Origin(uid=f"u{number}", generation=1))
        history.came_from(Origin(uid="busy", generation=number))
    assert len(history.origins) == 64
    assert history.newest_of("busy") == Origin(uid="busy", generation=69)
    assert (history.newest_of("u0"), history.newest_of("u69")) == (None, Origin(uid="u69", generation=1))


async def test_a_hold_refuses_a_put_and_forgets_it(there, text):
    there.steering.hold("uid:0")
    receipt = await put(there, pushed(text(7)))
    assert receipt.outcome == "rejected"
    (problem,) = receipt.problems
    assert (str(problem.code), "hand it in again" in problem.hint) == ("HRT-1018", True)
    assert there.status()["hold"]["put_off"] is False
    assert there.steering.resume("uid:0") is None
    assert batch_of(there) == 64


async def test_force_goes_through_a_hold_which_stays(there, text):
    there.steering.hold("uid:0")
    assert (await put(there, pushed(text(7)), force=True)).outcome == "applied"
    assert there.status()["hold"] is not None


async def test_a_put_can_be_planned(there, text):
    plan = await there.steering.plan_put(pushed(text(7), there.reconciler.accepted.revision))
    assert (plan["outcome"], plan["source"]) == ("changes", "pushed")
    assert batch_of(there) == 64
    assert len(there.reconciler.receipts.all()) == 1


# --- documents that come by pushes alone -----------------------------------------------------------------


class Pushed:
    """A world whose source takes pushes; `first` is what the file holds, None: there is none."""

    def __init__(self, world, first):
        self.world = world
        self.first = first
        self.reads = 0
        world.reconciler.source = Source.of(PushedSource("/etc/config.yaml", self.read), {})

    def read(self):
        self.reads += 1
        if isinstance(self.first, Exception):
            raise self.first
        return None if self.first is None else content(self.first)


@pytest.fixture
def push_world(world):
    async def made(first, **fields):
        there = Pushed(await world(**fields), None)
        there.first = first(there.world) if callable(first) else first
        return there

    return made


async def test_push_a_start_without_a_document_is_no_fault(push_world):
    there = await push_world(None)
    assert await there.world.steering.start(resume=False) == ()
    assert there.world.reconciler.receipts.all() == ()
    assert there.world.reconciler.accepted is None
    assert await there.world.reconciler.listen() is None
    assert there.world.sockets.serving.port == 8000
    receipt = await put(there.world, pushed(document(there.world.model("a"), server={"port": 9000})))
    assert (receipt.outcome, there.world.sockets.serving.port) == ("applied", 9000)
    assert there.world.status()["drift"] is None


@pytest.mark.parametrize(
    ("server", "port"),
    [
        ({"port": 9001}, 9001),
        ({"port": 9001, "nonsense": 1}, 8000),
        ({"port": 9001, "host": EVERYWHERE}, 8000),  # without keys
        ({"port": 9001, "auth": {"keys": [{"name": "k", "file": "/no/such/key"}]}}, 8000),
    ],
)
async def test_push_a_bad_document_at_the_start_opens_its_own_doors_where_they_are_right(push_world, server, port):
    there = await push_world(document({"name": "a", "model": "/no/such.gguf"}, server=server))
    (tried,) = await there.world.steering.start(resume=False)
    assert tried.outcome == "rejected"
    assert await there.world.reconciler.listen() is None
    assert there.world.sockets.serving.port == port
    assert there.world.status()["settled"] is False


async def test_push_with_resume_the_last_active_document_serves_where_there_is_none(push_world, tmp_path, world):
    first = await world(folder=tmp_path / "w", state=tmp_path / "state")
    await first.apply(first.model("a"))
    await first.stop()
    (tmp_path / "w" / "stage").unlink(missing_ok=True)
    there = await push_world(None, folder=tmp_path / "w", state=tmp_path / "state")
    (tried,) = await there.world.steering.start(resume=True)
    assert await reached(tried, Milestone.SERVING)
    assert (tried.outcome, tried.source) == ("applied", "kept:r1")


async def test_push_a_reload_takes_the_last_pushed_document_again(push_world):
    there = await push_world(lambda world: document(world.model("a")))
    (tried,) = await there.world.steering.start(resume=False)
    await reached(tried)
    there.first = document(there.world.model("a", max_batch=5))
    await put(there.world, pushed(document(there.world.model("a", max_batch=7))))
    again = await reached(there.world.reconciler.reload("signal", "SIGHUP"))
    assert (again.outcome, batch_of(there.world)) == ("unchanged", 7)
    await put(there.world, pushed("models: ["))  # what was pushed last is what is wanted, right or wrong
    bad = await reached(there.world.reconciler.reload("api", "x"))
    assert (bad.outcome, batch_of(there.world)) == ("rejected", 7)
    assert (again.source, bad.source, {problem.file for problem in bad.problems}) == ("pushed", "pushed", {"pushed"})


async def test_push_before_the_first_push_a_reload_reads_the_file_again(push_world):
    there = await push_world(SourceError("/etc/config.yaml cannot be read: Permission denied"))
    (tried,) = await there.world.steering.start(resume=False)
    assert [str(problem.code) for problem in tried.problems] == ["HRT-1017"]
    there.first = document(there.world.model("a"))
    again = await reached(there.world.reconciler.reload("api", "x"))
    assert (again.outcome, again.source) == ("applied", "/etc/config.yaml")


async def test_push_what_a_hold_put_off_is_applied_when_it_ends(push_world):
    there = await push_world(lambda world: document(world.model("a")))
    (tried,) = await there.world.steering.start(resume=False)
    await reached(tried)
    there.world.steering.hold("uid:0")
    held = await put(there.world, pushed(document(there.world.model("a", max_batch=7))))
    assert (held.outcome, batch_of(there.world)) == ("rejected", 64)
    assert there.world.status()["hold"]["put_off"] is True
    resumed = await reached(there.world.steering.resume("uid:0"))
    assert (resumed.outcome, batch_of(there.world)) == ("applied", 7)
    assert there.world.status()["drift"] is None


async def test_push_a_rollback_is_drift_from_what_was_pushed(push_world):
    there = await push_world(lambda world: document(world.model("a")))
    (tried,) = await there.world.steering.start(resume=False)
    await reached(tried)
    await put(there.world, pushed(document(there.world.model("a", max_batch=7))))
    back = await reached(there.world.steering.rollback(None, "x"))
    assert batch_of(there.world) == 64
    assert there.world.status()["drift"]["receipt"] == back.id
