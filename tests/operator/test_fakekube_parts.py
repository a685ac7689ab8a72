"""The stand-in's pure parts: quantities, selectors, patches, paths, columns."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from support.kube import patches, quantities, selectors, tables
from support.kube.errors import ApiError
from support.kube.kinds import Kinds
from support.kube.paths import target

KINDS = Kinds()
POD = KINDS.named("Pod")


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("0.5", "500m"), ("1000m", "1"), ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("0.5Gi", "512Mi"), ("1e3", "1e3"),
        ("1000", "1k"), ("100000", "100k"), ("1500", "1500"), ("0", "0"), (2, "2"), ("-0.1", "-100m"), ("1Gi", "1Gi"),
    ],
)  # fmt: skip
def test_quantities_have_one_form(written, stored):
    assert quantities.canonical(written) == stored
    assert quantities.value(stored) == quantities.value(written)


@pytest.mark.parametrize("text", ["", "1x", "Gi", "1 Gi", "1.2.3", "one"])
def test_what_is_no_quantity_is_said_to_be_none(text):
    with pytest.raises(ValueError, match="is no quantity"):
        quantities.value(text)


def test_quantities_are_exact():
    assert quantities.value("0.1") * 3 == Decimal("0.3")


def _labelled(**labels):
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "labels", "fits"),
    [
        ("a=1,b!=2", {"a": "1"}, True),
        ("a=1,b!=2", {"a": "1", "b": "2"}, False),
        ("a in (1,2),!b", {"a": "2"}, True),
        ("a notin (1,2)", {}, True),
        ("app.kubernetes.io/name==x", {"app.kubernetes.io/name": "x"}, True),
    ],
)
def test_label_selectors(selector, labels, fits):
    assert selectors.labels(selector)(_labelled(**labels)) is fits


@pytest.mark.parametrize("selector", ["a=b=c", "a in 1", "=x"])
def test_a_selector_that_cannot_be_read_is_refused(selector):
    with pytest.raises(ApiError) as refused:
        selectors.labels(selector)
    assert refused.value.status == 400


def test_a_merge_patch_takes_away_by_null_and_replaces_lists():
    live = {"a": {"b": 1, "c": 2}, "d": [1, 2]}
    assert patches.merge_patch(live, {"a": {"b": None}, "d": [3], "e": {"f": {"g": None}}}) == {
        "a": {"c": 2},
        "d": [3],
        "e": {"f": {}},
    }
    assert live == {"a": {"b": 1, "c": 2}, "d": [1, 2]}


def test_a_strategic_patch_merges_by_keys():
    live = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1", "args": ["x"]}]}}
    change = {"spec": {"containers": [{"name": "b", "args": ["y"]}, {"name": "a", "$patch": "delete"}, {"name": "c"}]}}
    assert patches.strategic(POD, live, change) == {
        "spec": {"containers": [{"name": "b", "image": "1", "args": ["y"]}, {"name": "c"}]}
    }


def test_a_strategic_patch_keeps_what_it_is_told_to_keep():
    live = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "finalizers": ["a", "b"]}
    change = {
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        "$deleteFromPrimitiveList/finalizers": ["a"],
    }
    assert patches.strategic(POD, live, change) == {"strategy": {"type": "Recreate"}, "finalizers": ["b"]}


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "remove", "path": "/b"}], 422),
        ([{"op": "replace", "path": "/b/c", "value": 1}], 422),
        ({"a": 1}, 400),
        ([{"op": "jump", "path": "/a"}], 400),
    ],
)
def test_json_patches_that_fail(operations, status):
    with pytest.raises(ApiError) as refused:
        patches.json_patch({"a": 1}, operations)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/pods", ("Pod", "", "", "")),
        ("/api/v1/namespaces/n/pods/p/status", ("Pod", "n", "p", "status")),
        ("/api/v1/namespaces", ("Namespace", "", "", "")),
        ("/api/v1/namespaces/n", ("Namespace", "", "n", "")),
        ("/api/v1/namespaces/n/status", ("Namespace", "", "n", "status")),
        ("/apis/apps/v1/namespaces/n/deployments/d/scale", ("Deployment", "n", "d", "scale")),
        ("/api/v1/pods/p", None),
        ("/api/v1/namespaces/n/nodes", None),
        ("/api/v1/namespaces/n/configmaps/c/status", None),
        ("/apis/apps/v1", None),
        ("/apis/no.such/v1/things", None),
    ],
)
def test_paths(path, found):
    had = target(KINDS, path)
    assert (had and (had.kind.kind, had.namespace, had.name, had.subresource)) == found


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[*].type", ["Ready", "Stalled"]),
        (".status.conditions[1].type", ["Stalled"]),
        (".metadata.labels['a.b/c']", ["x"]),
        (r".metadata.labels.a\.b/c", ["x"]),
        (".spec.nothing", []),
    ],
)  # fmt: skip
def test_columns_find_their_values(path, values):
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"}]
    body = {"metadata": {"labels": {"a.b/c": "x"}}, "status": {"conditions": conditions}}
    assert tables.find(body, path) == values


@pytest.mark.parametrize(
    ("then", "age"),
    [
        ("2026-01-01T00:00:00Z", "9d"),
        ("2026-01-07T21:00:00Z", "2d3h"),
        ("2026-01-09T22:00:00Z", "120m"),
        ("2026-01-09T19:59:00Z", "4h1m"),
        ("2026-01-09T23:57:30Z", "2m30s"),
        ("2026-01-09T23:59:50Z", "10s"),
        ("x", "<unknown>"),
    ],
)
def test_ages_are_told_as_people_read_them(then, age):
    secret = {"metadata": {"name": "s", "creationTimestamp": then}}
    found = tables.table(KINDS.named("Secret"), [secret], {}, datetime(2026, 1, 10, tzinfo=UTC))
    assert found["rows"][0]["cells"] == ["s", None, age]
