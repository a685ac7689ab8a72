"""`halogend check` and a reload tell what is wrong with a model's files as a problem, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.malformed import CASES, read_expected

from halogend.config.parse import parse
from halogend.config.rules import check
from halogend.control.facts import gather_facts

ROOT = Path(__file__).parents[1] / "cases/malformed"
EXPECTED = {name: read_expected(ROOT / name) for name in sorted(CASES)}
AT_OPEN = [name for name, expected in EXPECTED.items() if expected.stage == "open" and expected.code]
# Of a tokenizer's files these need no tokenizer to be seen.
SETTINGS = [
    "text-no-tokenizer",
    "text-settings-no-json",
    "text-bos-number",
    "text-eos-text",
    "text-generation-eos-text",
    "text-template-number",
    "text-template-no-utf8",
    "text-added-decoder-id",
]


def problems(name: str) -> list[str]:
    """Each as it is printed for a document that names the model."""
    expected = EXPECTED[name]
    text = f"model: {ROOT / name / expected.target}\nload_format: {expected.load_format}\nport: 8000\n"
    parsed = parse(text.encode(), "config.yaml", {})
    assert parsed.document is not None
    return [str(problem) for problem in check(parsed, gather_facts(parsed.document))]


@pytest.mark.parametrize("name", [*AT_OPEN, *SETTINGS])
def test_the_one_problem_stands_at_the_model_with_the_refusal_and_a_hint(name: str):
    expected = EXPECTED[name]
    assert expected.message is not None
    [problem] = problems(name)
    message = expected.message.replace("{case}", str(ROOT / name))
    assert problem.startswith(f"config.yaml:1:8: {expected.code}: {message} (")
    assert problem.endswith(".)")


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.code is None])
def test_a_sound_model_gives_none(name: str):
    assert problems(name) == []
