"""Block sizes come from tables: the first rule that holds, and representatives for all classes."""

import json

import pytest
from halogen_kernels.triton import targets, tuning

RULES = {
    "sm_90": [
        {"when": {"head_dim": [64, 80], "rows": {"max": 16}}, "blocks": {"BLOCK": 32, "num_warps": 4}},
        {"when": {"rows": {"min": 129}, "causal": True}, "blocks": {"BLOCK": 256}},
        {"blocks": {"BLOCK": 128}},
    ],
    "sm_80": [{"when": {"rows": {"max": 4}}, "blocks": {"BLOCK": 16}}],
    "default": [{"blocks": {"BLOCK": 64}}],
}


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    (tmp_path / "toy.json").write_text(json.dumps(RULES))
    monkeypatch.setattr(tuning, "TABLES", tmp_path)
    tuning.rules.cache_clear()
    tuning.picked.cache_clear()
    yield
    tuning.rules.cache_clear()
    tuning.picked.cache_clear()


def on(name):
    return targets.chosen(targets.named(name))


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ({"head_dim": 80, "rows": 16, "causal": False}, 32),
        ({"head_dim": 80, "rows": 17, "causal": False}, 128),
        ({"head_dim": 96, "rows": 16, "causal": False}, 128),
        ({"head_dim": 64, "rows": 129, "causal": True}, 256),
        ({"head_dim": 64, "rows": 129, "causal": False}, 128),
    ],
)
def test_the_first_rule_that_holds_counts(shape, block):
    with on("sm_90"):
        assert tuning.pick("toy", **shape)["BLOCK"] == block


def test_a_target_without_rules_has_the_default_s():
    with on("gfx942"):
        assert dict(tuning.pick("toy", rows=1)) == {"BLOCK": 64}
    assert dict(tuning.pick("toy", rows=1)) == {"BLOCK": 64}, "the interpreter's"


def test_what_no_rule_covers_and_what_has_no_table_are_errors_that_say_so():
    with on("sm_80"), pytest.raises(LookupError, match=r"'toy' on sm_80 with \{'rows': 5\}"):
        tuning.pick("toy", rows=5)
    with pytest.raises(LookupError, match="'other'; there are toy"):
        tuning.pick("other")


def test_representatives_lead_to_every_class():
    with on("sm_90"):
        numbers = tuning.representatives("toy", "rows")
        assert numbers == (1, 16, 17, 128, 129)
        few = {tuning.pick("toy", head_dim=64, rows=number, causal=True)["BLOCK"] for number in numbers}
        all_ = {tuning.pick("toy", head_dim=64, rows=number, causal=True)["BLOCK"] for number in range(1, 300)}
    assert few == all_ == {32, 128, 256}


def test_products_are_names_of_targets():
    assert targets.named("ai_max_395").name == "gfx1151"
    assert targets.named("h200") is targets.named("h100") is targets.named("sm_90")
    with pytest.raises(ValueError, match=r"'rtx_3090' is no known target; known are sm_80 \(a100\), "):
        targets.named("rtx_3090")


@pytest.mark.parametrize(
    ("name", "target"),
    [("sm_86", ("cuda", 86, 32)), ("gfx1100", ("hip", "gfx1100", 32)), ("gfx90a", ("hip", "gfx90a", 64))],
)
def test_an_architecture_without_tables_is_called_as_its_devices_call_it(name, target):
    """What a device of it asks to have compiled, and `halogend warmup-kernel` can be told."""
    found = targets.named(name)
    assert (found.name, found.backend, found.arch, found.warp) == (name, *target)
    assert found.shared_bytes == min(each.shared_bytes for each in targets.TARGETS if each.backend == found.backend)
    with targets.chosen(found):
        assert tuning.pick("toy") == {"BLOCK": 64}
    for unknown in ("sm_75", "sm_9", "gfx", "gfxabcde"):
        with pytest.raises(ValueError, match="is no known target"):
            targets.named(unknown)
