"""Tables are re-tuned by measuring: the classes stay, the sizes become those that were fastest."""

import importlib
import json

import pytest
import torch
from halogen_kernels.triton import tuning
from test_kernel_benches import BENCHES

TABLE = {
    "interpreter": [
        {"when": {"rows": {"max": 16}}, "blocks": {"BLOCK": 64, "num_warps": 4}},
        {"when": {"rows": {"max": 32}}, "blocks": {"BLOCK": 64}},
        {"blocks": {"BLOCK": 64, "num_stages": 2}},
    ],
    "sm_90": [{"blocks": {"BLOCK": 256, "num_warps": 2}}],
    "default": [{"blocks": {"BLOCK": 512}}],
}


@pytest.fixture
def retune(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHES)
    monkeypatch.setattr(tuning, "TABLES", tmp_path)
    (tmp_path / "toy.json").write_text(json.dumps(TABLE))
    tuning.rules.cache_clear()
    tuning.picked.cache_clear()
    yield importlib.import_module("retune")
    tuning.rules.cache_clear()
    tuning.picked.cache_clear()


def seconds(rows):
    """As if 32 were fastest for few rows with two warps, and more stages better for many."""
    blocks = tuning.pick("toy", rows=rows)
    if blocks["BLOCK"] > 128:
        raise RuntimeError("does not fit")
    if rows <= 16:
        return abs(blocks["BLOCK"] - 32) + blocks["num_warps"] / 100 + 1
    return 10 - blocks["num_stages"]


def test_the_fastest_sizes_go_into_the_rules_that_the_cases_lead_to(retune):
    rules = retune.retuned("toy", [4, 16, 100], seconds)
    assert rules == [
        {"when": {"rows": {"max": 16}}, "blocks": {"BLOCK": 32, "num_warps": 4}},
        TABLE["interpreter"][1],
        {"blocks": {"BLOCK": 64, "num_stages": 3}},
    ]
    text = retune.with_rules("toy", "sm_80", rules)
    assert json.loads(text) == {**TABLE, "sm_80": rules}
    assert '    {"when": {"rows": {"max": 16}}, "blocks": {"BLOCK": 32, "num_warps": 4}},\n' in text


def test_candidates_are_the_rule_s_own_its_neighbours_and_those_of_other_targets(retune):
    found = retune.candidates("toy", TABLE["interpreter"][0])
    assert found[0] == {"BLOCK": 64, "num_warps": 4}
    assert sorted((each["BLOCK"], each["num_warps"]) for each in found) == [
        (32, 4),
        (64, 2),
        (64, 4),
        (64, 8),
        (128, 4),
        (256, 2),
    ]


def test_a_real_operator_s_table_can_be_measured(device, monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHES)
    importlib.import_module("retune").main(["activation", "--device", device.type, "--small", "--print"])
    assert '"interpreter": [\n' in capsys.readouterr().out
    assert torch.get_num_threads() == 1
