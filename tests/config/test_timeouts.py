"""S11: timeouts that cannot hold at once are refused, those that can are not."""

import pytest
from support.config_documents import read

from halogend.config.codes import Code
from halogend.config.rules import check

MODEL = "apiVersion: halogen.dev/v1alpha1\nmodels:\n  - {{name: a, model: /a.gguf, {fields}}}\n"


def codes(fields: str) -> list[str]:
    return [problem.code for problem in check(read(MODEL.format(fields=fields)))]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("queue_timeout_ms: 5000, request_timeout_ms: 5000", Code.TIMEOUTS_CONTRADICT),
        ("request_timeout_ms: 60000", Code.TIMEOUTS_CONTRADICT),
        ("reload: {strategy: replace, drain_timeout_s: 60.5}", Code.TIMEOUTS_CONTRADICT),
        ("reload: {strategy: replace, drain_timeout_s: 10}, queue_timeout_ms: 9999", Code.TIMEOUTS_CONTRADICT),
        ("load: {progress_timeout_s: 4}", Code.BAD_VALUE),
    ],
)
def test_s11_timeouts_that_contradict_each_other_are_refused(fields: str, code: Code) -> None:
    assert codes(fields) == [code]


@pytest.mark.parametrize(
    "fields",
    [
        "queue_timeout_ms: 5000, request_timeout_ms: 5001",
        "queue_timeout_ms: 5000, request_timeout_ms: 0",
        "reload: {strategy: replace, drain_timeout_s: 60}",
        "reload: {strategy: replace, drain_timeout_s: auto}",
        "reload: {strategy: overlap, drain_timeout_s: 900}, queue_timeout_ms: 1000",
        "load: {progress_timeout_s: 5}",
    ],
)
def test_s11_those_that_agree_are_taken(fields: str) -> None:
    assert codes(fields) == []
