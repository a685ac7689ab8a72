"""Which way a model comes to its new generation, and where: the first that fits."""

import pytest
from support.imagined import Imagined

from halogend.control.present import Present
from halogend.control.strategy import Now, decide
from halogend.control.target import Landing, Way

HEAD = "apiVersion: halogen.dev/v1alpha1\n"
SIZES = {
    "/m/old.gguf": {"weights": "4GiB", "working": "512MiB"},
    "/m/new.gguf": {"weights": "4GiB", "working": "512MiB"},
    "/m/tiny.gguf": {"weights": "64MiB", "working": "64MiB"},
}
HALVES = "  - {{id: 'cpu:0', cores: '0-1', reserve: 1MiB}}\n  - {{id: 'cpu:1', cores: '2-3', reserve: 1MiB{}}}\n"


def document(*models, devices="", reload="auto"):
    lines = [f"devices:\n{devices}" if devices else "", f"reload: {{strategy: {reload}}}\n"]
    entries = [f"  - {{name: {name}, model: /m/{file}.gguf, {rest}}}\n" for name, file, rest in models]
    return HEAD + "".join(lines) + "models:\n" + "".join(entries)


def chat(file, rest="kv_cache_bytes: 3GiB"):
    return "chat", file, rest


class There:
    """What runs after `text`, and what comes of another document."""

    def __init__(self, memory, text):
        self.world = Imagined(memory=memory, reserve=0, foreign=0, checkpoints=SIZES)
        self.document, targets = self.world.targets(text)
        standing = self.world.serving(targets)
        self.now = Now(standing.goals, standing.held, standing.present)

    def decide(self, text):
        document, targets = self.world.targets(text)
        return decide(self.now, targets, (self.document, document))

    def target(self, text, name="chat"):
        plan, bytes_ = self.decide(text)
        assert plan.problems == ()
        assert bytes_.misfits == {}
        return next(each.target for each in plan.models if each.model == name)

    def follow(self, text):
        """As if all of it were done."""
        document, targets = self.world.targets(text)
        plan, bytes_ = decide(self.now, targets, (self.document, document))
        goals = {each.model: each.target for each in plan.models if each.target is not None}
        present = {
            name: Present(goal, f"{name}#9", goal.spec.engine.pool_reserve_bytes) for name, goal in goals.items()
        }
        self.document = document
        self.now = Now(goals, {f"{name}#9": holding for name, holding in bytes_.after.items()}, present)


def test_beside_the_old_one_comes_first():
    there = There("16GiB", document(chat("old")))
    target = there.target(document(chat("new")))
    assert (target.way, target.landing, target.device) == (Way.OVERLAP, Landing.HOME, "cpu:0")


def test_a_spare_device_comes_before_an_idle_one_and_both_before_a_smaller_pool():
    spare = HALVES.format(", spare: true")
    for devices, kv, expected in [
        (HALVES.format(""), "kv_cache_bytes: 3GiB", (Way.OVERLAP, Landing.IDLE, "cpu:1")),
        (spare, "kv_cache_bytes: 3GiB", (Way.OVERLAP, Landing.SPARE, "cpu:1")),
        (spare, "kv_cache_bytes: 3GiB, device: 'cpu:0'", (Way.OVERLAP, Landing.SPARE, "cpu:1")),
        (HALVES.format(""), "kv_cache_bytes: 3GiB, device: 'cpu:0'", (Way.SHRINK, Landing.HOME, "cpu:0")),
    ]:
        there = There("20GiB", document(chat("old", kv), devices=devices))
        target = there.target(document(chat("new", kv), devices=devices))
        assert (target.way, target.landing, target.device) == expected


def test_a_device_that_a_model_is_wanted_on_is_not_idle():
    devices = HALVES.format("")
    other = ("other", "tiny", "kv_cache_bytes: 300MiB, device: 'cpu:1'")
    there = There("20GiB", document(chat("old"), other, devices=devices))
    assert there.target(document(chat("new"), other, devices=devices)).way is Way.SHRINK
    gone = document(chat("new"), devices=devices)  # but what is removed is still on it
    assert there.target(gone).way is Way.SHRINK


def test_a_generation_stays_where_it_landed_and_the_next_one_goes_home():
    devices = HALVES.format(", spare: true")
    there = There("20GiB", document(chat("old"), devices=devices))
    moved = document(chat("new"), devices=devices)
    there.follow(moved)
    assert there.now.goals["chat"].device == "cpu:1"
    (kept,) = there.decide(moved)[0].models
    assert (kept.action, kept.target.device) == ("keep", "cpu:1")
    (live,) = there.decide(document(chat("new", "kv_cache_bytes: 2GiB"), devices=devices))[0].models
    assert (live.action, live.target.device, live.target.holding.kv_bytes) == ("update", "cpu:1", 2 << 30)
    home = there.target(document(chat("old"), devices=devices))
    assert (home.landing, home.device) == (Landing.HOME, "cpu:0")


def test_a_spare_that_is_taken_away_sends_its_model_home():
    there = There("20GiB", document(chat("old"), devices=HALVES.format(", spare: true")))
    there.follow(document(chat("new"), devices=HALVES.format(", spare: true")))
    whole = document(chat("new", "kv_cache_bytes: 3GiB, device: 'cpu:0'"), devices=HALVES.format(", spare: true"))
    (plan,) = there.decide(whole)[0].models
    assert (plan.action, plan.target.device) == ("replace", "cpu:0")
    (plan,) = there.decide(document(chat("new")))[0].models
    assert plan.action == "replace"
    assert {"field": "placed on", "old": "cpu:1", "new": "cpu:0", "class": "generation"} in plan.changes


def test_a_device_becomes_spare_or_another_size_live():
    """Whoever is on it stays, and with `auto` the next generation goes elsewhere."""
    there = There("20GiB", document(chat("old"), devices=HALVES.format("")))
    kept = HALVES.format("").replace("reserve: 1MiB}", "reserve: 1MiB, spare: true}", 1)
    plan = there.decide(document(chat("old"), devices=kept))[0]
    (model,) = plan.models
    assert (model.action, model.target.device, model.target.landing) == ("keep", "cpu:0", Landing.SPARE)
    assert [(each["field"], each["class"]) for each in plan.server_changes] == [("devices[cpu:0].spare", "live")]
    assert there.target(document(chat("new"), devices=kept)).device == "cpu:1"
    smaller = HALVES.format("").replace("reserve: 1MiB", "reserve: 4GiB", 1)
    (model,) = there.decide(document(chat("old"), devices=smaller))[0].models
    assert model.action == "update"
    assert {each["class"] for each in model.changes} == {"live"}
    assert model.target.budget_bytes == 6 << 30


@pytest.mark.parametrize(
    ("stated", "way"), [("overlap", None), ("shrink", Way.SHRINK), ("auto", Way.SHRINK), ("replace", Way.REPLACE)]
)
def test_a_strategy_that_is_stated_is_the_only_one(stated, way):
    there = There("11GiB", document(chat("old"), reload=stated))
    plan, bytes_ = there.decide(document(chat("new"), reload=stated))
    if way is None:
        (problem,) = plan.problems
        assert (problem.code, problem.path) == ("HRT-1004", "chat")
        return
    assert plan.problems == ()
    assert plan.models[0].target.way is way
    assert ("chat" in bytes_.shrinks) is (way is Way.SHRINK)


def test_where_no_way_fits_the_problem_names_what_was_tried():
    devices = HALVES.format(", spare: true, memory: 1GiB")
    big = chat("new", "kv_cache_bytes: 300MiB")
    there = There("9GiB", document(chat("old", "kv_cache_bytes: 300MiB"), devices=devices))
    (problem,) = there.decide(document(big, devices=devices))[0].problems
    for words in ("nor on cpu:1", "nor after the old pool shrank to one full request", "MiB"):
        assert words in problem.message


def test_shrinking_takes_what_is_missing_and_no_more():
    there = There("11GiB", document(chat("old")))
    plan, bytes_ = there.decide(document(chat("new")))
    before, during = bytes_.shrinks["chat"]
    (device,) = bytes_.devices
    assert before == 3 << 30
    assert plan.models[0].target.floor_bytes <= during < before
    assert device.peak.total_bytes == plan.models[0].target.budget_bytes
    assert device.after.kv_bytes == 3 << 30


def test_l14_two_hot_models_with_room_for_one_are_refused_and_nobody_is_evicted():
    """Neither is the one that serves given up, nor does its pool make room for another model."""
    running = document(chat("old"))
    both = document(chat("old"), ("hot", "new", "kv_cache_bytes: 300MiB"))
    there = There("10GiB", running)
    for _ in range(2):
        plan, bytes_ = there.decide(both)
        assert {each.model: each.action for each in plan.models} == {"chat": "keep", "hot": "create"}
        assert [(each.code, each.path) for each in plan.problems] == [("HRT-1004", "hot")]
        assert bytes_.shrinks == {}
    smaller = Imagined(memory="8GiB", reserve="1MiB", foreign="1MiB", checkpoints=SIZES).plan(running, both)
    assert (smaller["outcome"], smaller["problems"][0]["code"]) == ("rejected", "HCF-1203")


SEVERAL, ONE = "exec_mode: data_parallel, device: ['cpu:0', 'cpu:1']", "device: 'cpu:0'"


@pytest.mark.parametrize("stated", ["auto", "overlap", "shrink", "rolling", "replace"])
@pytest.mark.parametrize("mode", [ONE, SEVERAL])
def test_every_strategy_has_a_way_for_every_mode_or_is_refused_with_it(stated, mode):
    """With room for both."""
    devices = HALVES.format("")
    wanted = document(chat("new", f"kv_cache_bytes: 300MiB, {mode}"), devices=devices, reload=stated)
    running = document(chat("old", f"kv_cache_bytes: 300MiB, {mode}"), devices=devices)
    if (stated, mode) in {("shrink", SEVERAL), ("rolling", ONE)}:
        there = Imagined(memory="40GiB", reserve=0, foreign=0, checkpoints=SIZES)
        assert f"strategy {stated}" in there.plan(running, wanted)["problems"][0]["message"].replace("`", "")
        return
    ways = {"shrink": Way.SHRINK, "rolling": Way.ROLLING, "replace": Way.REPLACE}
    assert There("40GiB", running).target(wanted).way is ways.get(stated, Way.OVERLAP)
