"""What of a change stands in no field: the class of one of `device`, and session classes by their names."""

import pytest

from halogend.config.changes import model_changes
from halogend.config.fields import Apply
from halogend.config.schema import ModelConfig


def entry(device, exec_mode="data_parallel"):
    return ModelConfig.model_validate({"name": "m", "model": "/m.gguf", "device": device, "exec_mode": exec_mode})


@pytest.mark.parametrize(
    ("old", "new", "apply"),
    [
        (["cpu:0"], ["cpu:0", "cpu:1"], Apply.LIVE),
        (["cpu:0", "cpu:1"], ["cpu:1"], Apply.LIVE),
        (["cpu:0", "cpu:1"], ["cpu:1", "cpu:2"], Apply.LIVE),
        (["cpu:0", "cpu:1"], ["cpu:1", "cpu:0"], Apply.LIVE),
        (["cpu:0"], [{"id": "cpu:0", "weight": 2}], Apply.LIVE),
        (["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"], Apply.GENERATION),
    ],
)
def test_replicas_come_and_go_live_as_long_as_one_stays(old, new, apply):
    (change,) = model_changes(entry(old), entry(new))
    assert (change.path, change.apply) == ("device", apply)


def test_another_device_of_a_single_model_is_another_generation_and_another_weight_is_none():
    old = entry("cpu:0", "single")
    assert [each.apply for each in model_changes(old, entry("cpu:1", "single"))] == [Apply.GENERATION]
    assert [each.apply for each in model_changes(old, entry([{"id": "cpu:0", "weight": 2}], "single"))] == [Apply.LIVE]
    assert model_changes(old, entry("cpu:0", "single")) == ()


def test_another_mode_is_another_generation_whatever_the_devices():
    found = {each.path: each.apply for each in model_changes(entry("cpu:0", "single"), entry(["cpu:0", "cpu:1"]))}
    assert found == {"device": Apply.GENERATION, "exec_mode": Apply.GENERATION}


def test_a_session_class_is_its_name_wherever_it_stands_and_all_of_it_is_live():
    gold, silver = {"class": "gold", "priority": 10, "pin_quota": 0.2}, {"class": "silver"}

    def model(*classes):
        eviction = {"policy": "priority_lru", "sessions": classes}
        return ModelConfig.model_validate({"name": "m", "model": "/m.gguf", "eviction": eviction})

    assert model_changes(model(gold, silver), model(silver, gold)) == ()
    (changed,) = model_changes(model(gold), model({**gold, "priority": 9}))
    assert (changed.path, changed.old, changed.new) == ("eviction.sessions[gold].priority", 10, 9)
    gone, come = model_changes(model(gold), model(silver))
    assert (gone.path, gone.old["pin_quota"], gone.new) == ("eviction.sessions[gold]", 0.2, None)
    assert (come.path, come.old, come.new["class"]) == ("eviction.sessions[silver]", None, "silver")
    assert {each.apply for each in (changed, gone, come)} == {Apply.LIVE}
