"""What is foretold of a change against what the ledger then holds, change after change in a played world."""

import random

import pytest
from support.imagined import Imagined
from support.played.world import content, document, reached, until
from support.v2_files import copy_v2

from halogend.config.problems import Problem
from halogend.control.forecast import forecast
from halogend.control.planning import Given
from halogend.control.present import Present
from halogend.control.receipts import Milestone

ROOM = 1120 << 20  # four generations of the played models, with little left for pools


class Watched:
    """The most that the ledger held since `begin`."""

    def __init__(self, house):
        self.ledger, self.most = house.ledger, 0
        enter, claim = house.ledger.enter, house.ledger.claim

        def entering(*entry):
            enter(*entry)
            self.look()

        def claiming(*entry):
            claim(*entry)
            self.look()

        house.ledger.enter, house.ledger.claim = entering, claiming

    def begin(self):
        self.most = 0
        self.look()

    def look(self):
        self.most = max(self.most, self.total())

    def total(self):
        return self.ledger.taken_bytes("cpu:0")


def wish(world, pick):
    """Some models, each of one of two files, with pools of several sizes, by bytes or by share."""
    models = []
    for name in "abc":
        if pick.random() < 0.3:
            continue
        fields = {"kv_cache_bytes": pick.choice(["1MiB", "16MiB", "90MiB", None]), "max_batch": 4096}
        if pick.random() < 0.5:
            fields["reload"] = {"strategy": pick.choice(["overlap", "shrink", "replace"])}
        if pick.random() < 0.3:
            fields["max_batch"] = pick.choice([8, 64])
        entry = world.model(name, pick.choice(["x", "y"]), **fields)
        models.append({key: value for key, value in entry.items() if value is not None})
    return document(*models)


@pytest.mark.parametrize("seed", [0, 105, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))])
async def test_the_ledger_never_holds_more_than_was_foretold_and_ends_as_foretold(world, seed):
    pick = random.Random(seed)
    there = await world(ROOM)
    watched = Watched(there.house)
    outcomes = []
    for _ in range(7):
        text = wish(there, pick)
        watched.begin()
        plan = await there.reconciler.plan(Given(content(text), "config.yaml"))
        receipt = await reached(there.edit(text))
        outcomes.append(receipt.outcome)
        if plan["outcome"] == "rejected":
            assert receipt.outcome == "rejected"
            assert [each["message"] for each in plan["problems"]] == [each.message for each in receipt.problems]
            continue
        assert {each["model"]: each["action"] for each in plan["models"]} == {
            name: record.action for name, record in receipt.models.items()
        }
        for each in plan["models"]:
            loads = [step for step in receipt.models[each["model"]].steps if step.name == "load"]
            assert bool(loads) == bool(each["load"]) == bool(each["at_start"])
        (device,) = plan["devices"] or [{"peak": {"total_bytes": 0}, "after": {"total_bytes": 0}}]
        assert watched.most <= device["peak"]["total_bytes"]
        after = device["after"]["total_bytes"]
        await until(lambda after=after: watched.total() == after, f"{after} are held, not {watched.total()}")
        assert watched.most <= device["peak"]["total_bytes"]
    assert "applied" in outcomes


async def test_a_pool_does_not_grow_into_what_a_load_waits_for(world):
    """Room for three generations and one large pool: `b` may have its own when the old `a` is gone."""
    there = await world(1018 << 20)
    large, small = {"kv_cache_bytes": "90MiB", "max_batch": 4096}, {"kv_cache_bytes": "1MiB", "max_batch": 4096}
    alone = {"reload": {"strategy": "overlap"}}
    await there.apply(there.model("a", "x", **large), there.model("b", "x", **small))
    text = document(there.model("a", "y", **large), there.model("b", "x", **large), **alone)
    plan = await there.reconciler.plan(Given(content(text), ""))
    assert plan["outcome"] == "changes"
    receipt = await reached(there.edit(text))
    assert receipt.outcome == "applied", receipt.view()
    after = plan["devices"][0]["after"]["total_bytes"]
    await until(lambda: there.house.ledger.taken_bytes("cpu:0") == after, "both pools have what was foretold")
    assert after == sum(unit.active.holding.total_bytes for unit in there.house.units.values())


async def test_the_first_load_begins_with_what_was_foretold(serving):
    there = await serving(672 << 20, kv_cache_bytes="20MiB", max_batch=4096)
    text = document(there.model("a", "b", kv_cache_bytes="90MiB", max_batch=4096))
    (planned,) = (await there.reconciler.plan(Given(content(text), "")))["models"]
    receipt = await reached(there.edit(text))
    load = next(step for step in receipt.models["a"].steps if step.name == "load")
    assert load.detail["expected_bytes"] == planned["at_start"]["grows_bytes"] == planned["at_start"]["total_bytes"]


async def test_a_file_that_the_old_one_has_mapped_is_not_expected_again(world):
    there = await world(ROOM)
    copy_v2(there.folder / "v.gguf", quantisation="int8")
    await there.apply(there.model("a", "v"))
    text = document(there.model("a", "v", kv_cache_dtype="fp32"))
    (planned,) = (await there.reconciler.plan(Given(content(text), "")))["models"]
    receipt = await reached(there.edit(text))
    load = next(step for step in receipt.models["a"].steps if step.name == "load")
    start = planned["at_start"]
    assert start["mapped_bytes"] > 0
    assert load.detail["expected_bytes"] == start["grows_bytes"] == start["total_bytes"] - start["mapped_bytes"]


async def test_while_a_stream_keeps_the_old_one_the_peak_is_what_was_foretold(serving):
    there = await serving(kv_cache_bytes="64MiB")
    watched = Watched(there.house)
    slow = there.stage.hold("generate", prompt="slow")
    answer = await there.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    text = document(there.model("a", "b", kv_cache_bytes="64MiB"), there.model("c", kv_cache_bytes="3MiB"))
    plan = await there.reconciler.plan(Given(content(text), ""))
    by_name = {each["model"]: each for each in plan["models"]}
    assert by_name["a"]["drain"] == {"limit_s": 30.0, "running": 1, "may_outlive": 1}
    assert by_name["c"]["drain"] is None
    watched.begin()
    receipt = await reached(there.edit(text), Milestone.SERVING)
    (device,) = plan["devices"]
    assert watched.most == device["peak"]["total_bytes"]
    assert device["peak"]["during"] == "c"
    slow.release("finish")
    await reached(receipt)
    assert watched.total() == device["after"]["total_bytes"]


async def test_a_load_that_is_under_way_is_counted_once(serving):
    there = await serving()
    load = there.stage.hold("load", role="engine", model="b")
    first = there.edit(document(there.model("a", "b")))
    await load.reached()
    same = await there.reconciler.plan(Given(content(document(there.model("a", "b"))), ""))
    assert same["outcome"] == "unchanged"
    (device,) = same["devices"]
    assert device["peak"]["total_bytes"] == device["now"]["total_bytes"] == 2 * device["after"]["total_bytes"]
    other = await there.reconciler.plan(Given(content(document(there.model("a", "c"))), ""))
    (device,) = other["devices"]
    assert device["peak"]["total_bytes"] == device["now"]["total_bytes"]
    load.release()
    await reached(first)


async def test_a_plan_sees_what_the_source_holds_and_leaves_the_watch_its_edit(serving):
    there = await serving()
    before = there.dump()
    there.text = document(there.model("a", max_batch=7))
    assert (await there.steering.plan())["outcome"] == "changes"
    there.text = "models: ["
    bad = await there.steering.plan()
    assert (bad["outcome"], bad["problems"][0]["line"]) == ("rejected", 1)
    there.text = None
    assert (await there.steering.plan())["problems"][0]["code"] == "HRT-1017"
    await there.comes_back_to(before)
    assert [each.id for each in there.reconciler.receipts.all()] == ["r1"]


async def test_a_plan_waits_for_the_listeners_of_a_change_and_leaves_them_alone(serving):
    there = await serving()
    there.sockets.may_commit.clear()
    there.sockets.in_commit.clear()
    receipt = there.edit(document(there.model("a"), server={"port": 8001}))
    await there.sockets.in_commit.wait()
    planning = there.spawned(
        there.reconciler.plan(Given(content(document(there.model("a"), server={"port": 8002})), ""))
    )
    assert there.sockets.bound.port == 8001
    there.sockets.may_commit.set()
    plan = await planning
    assert [(each["old"], each["new"]) for each in plan["server_changes"]] == [(8001, 8002)]
    await reached(receipt)
    assert (there.sockets.serving.port, there.sockets.bound) == (8001, None)
    there.sockets.refuse_prepare = Problem("HRT-1008", "busy", path="server.port")
    refused = await there.reconciler.plan(Given(content(document(there.model("a"), server={"port": 8003})), "x.yaml"))
    assert (refused["outcome"], refused["problems"][0]["line"] is not None) == ("rejected", True)


async def test_a_new_model_is_loaded_after_one_that_gives_memory_back(serving):
    """In the document's order `b` would take the room that the new `z` needs beside the old."""
    there = await serving(580 << 20)
    wanted = document(there.model("b"), there.model("a", "x"))
    plan = await there.reconciler.plan(Given(content(wanted), ""))
    assert plan["outcome"] == "changes"
    receipt = await reached(there.edit(wanted))
    assert receipt.outcome == "applied", receipt.view()
    began = {call.model: index for index, call in enumerate(there.stage.calls) if call.point == "load"}
    assert began["x"] < began["b"]


def test_a_dead_generation_holds_its_bytes_until_the_new_one_serves():
    there = Imagined()
    _, targets = there.targets("apiVersion: halogen.dev/v1alpha1\nmodels: [{name: m, model: /m.gguf}]\n")
    held = there.serving(targets).held
    dead = Present(targets["m"], draining=("m#1",))
    (device,) = forecast(held, {"m": dead}, targets).devices
    assert device.peak.total_bytes > device.now.total_bytes == device.after.total_bytes


async def test_a_plan_that_breaks_off_lets_go_of_what_it_bound(serving, monkeypatch):
    there = await serving()
    prepare = there.sockets.prepare

    async def breaks(server, access):
        await prepare(server, access)
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(there.sockets, "prepare", breaks)
    with pytest.raises(RuntimeError):
        await there.reconciler.plan(Given(content(document(there.model("a"))), ""))
    assert there.sockets.bound is None


def test_a_small_model_that_overtakes_a_large_one_is_counted():
    """Beside the old and the new `a` there is room for `c` and not for `b`, whose turn it would be."""
    sizes = {f"/m/{size}.gguf": {"weights": size, "working": "1MiB"} for size in ("4GiB", "3GiB", "2GiB", "1GiB")}
    there = Imagined(memory="8GiB", reserve=0, foreign=0, checkpoints=sizes)

    def document_of(**models):
        entry = "  - {{name: {}, model: /m/{}.gguf, kv_cache_bytes: 290MiB}}\n"
        entries = [entry.format(name, file) for name, file in models.items()]
        return "apiVersion: halogen.dev/v1alpha1\nmodels:\n" + "".join(entries)

    plan = there.plan(document_of(a="4GiB"), document_of(a="1GiB", b="3GiB", c="2GiB"))
    (device,) = plan["devices"]
    assert plan["outcome"] == "changes"
    assert device["peak"]["weights_bytes"] == 7 << 30
