"""The operator's role: what it does, and nothing besides."""

from collections.abc import Iterator

import yaml
from halogen_operator.resources import (
    DISRUPTION_BUDGET,
    EVENT,
    HALOGEN_MODEL,
    KINDS,
    POD,
    SERVICE_MONITOR,
    WATCHED,
)
from support.operator_manifests import DEPLOY

LOOK = {"get", "list", "watch"}
Allowed = set[tuple[str, str, str]]
"""Group, resource, verb."""


def allowed() -> Allowed:
    role = yaml.safe_load((DEPLOY / "base/cluster-role.yaml").read_text())
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _verbs() -> Iterator[tuple[str, str, str]]:
    for kind in KINDS.values():
        verbs: set[str] = LOOK.copy() if kind in WATCHED else {"get"}
        if kind is EVENT:
            verbs = {"create"}
        elif kind not in (HALOGEN_MODEL, POD):
            verbs |= {"create", "patch"}  # server-side apply
        if kind in (DISRUPTION_BUDGET, SERVICE_MONITOR):
            verbs |= {"delete"}  # not wanted any more
        yield from ((kind.group, kind.plural, verb) for verb in verbs)
    yield HALOGEN_MODEL.group, f"{HALOGEN_MODEL.plural}/status", "patch"


def test_the_role_is_what_the_operator_needs_of_each_kind() -> None:
    assert allowed() == set(_verbs())


def test_nothing_is_allowed_by_a_star() -> None:
    assert not any("*" in each for each in allowed())
