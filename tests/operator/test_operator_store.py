"""What the cluster holds, from lists, events and answers that come in any order."""

from __future__ import annotations

from typing import Any

from halogen_operator.names import MODEL_LABEL
from halogen_operator.resources import DEPLOYMENT, HALOGEN_MODEL, POD, WATCHED
from halogen_operator.store import Store


def _body(kind: str, name: str, version: int, *, uid: str = "", model: str | None = None) -> dict[str, Any]:
    labels = {} if model is None else {MODEL_LABEL: model}
    meta = {"namespace": "n", "name": name, "uid": uid or f"u-{name}", "resourceVersion": str(version)}
    return {"kind": kind, "metadata": {**meta, "labels": labels}}


def _model(name: str = "chat", version: int = 1, uid: str = "") -> dict[str, Any]:
    return _body("HalogenModel", name, version, uid=uid)


def test_an_object_concerns_the_model_whose_label_it_carries() -> None:
    store = Store()
    assert store.put(_body("Pod", "chat-1", 2, model="chat")) is None
    assert store.put(_model()) == "u-chat"
    assert store.put(_body("Pod", "chat-2", 3, model="chat")) == "u-chat"
    assert store.put(_body("Pod", "other", 4, model="gone")) is None
    assert [each["metadata"]["name"] for each in store.children("n", "chat", POD)] == ["chat-1", "chat-2"]


def test_an_older_version_that_comes_late_changes_nothing() -> None:
    store = Store()
    store.put(_model(version=7))
    assert store.put(_model(version=6)) is None
    assert store.put(_model(version=7)) is None
    assert store.put(_model(version=10)) == "u-chat"
    found = store.model("u-chat")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "10"


def test_the_deletion_of_a_namesake_that_was_before_takes_nothing_away() -> None:
    store = Store()
    store.put(_model(version=3, uid="old"))
    store.put(_model(version=9, uid="new"))
    assert store.model("old") is None
    assert store.remove(_model(version=5, uid="old")) is None
    assert store.model("new") is not None


def test_a_list_takes_away_what_it_does_not_hold_but_for_what_is_newer() -> None:
    store = Store()
    store.put(_model())
    store.put(_body("Deployment", "chat", 5, model="chat"))
    store.put(_body("Deployment", "young", 12, model="chat"))
    concerned = store.replace(DEPLOYMENT, None, [], "10")
    assert concerned == {"u-chat"}
    assert store.find(DEPLOYMENT, "n", "chat") is None
    assert store.find(DEPLOYMENT, "n", "young") is not None


def test_a_list_of_one_namespace_leaves_others_alone() -> None:
    store = Store()
    store.put(_model())
    store.replace(HALOGEN_MODEL, "elsewhere", [], "99")
    assert store.model("u-chat") is not None


def test_the_store_is_whole_when_every_kind_was_listed_everywhere() -> None:
    store = Store()
    for kind in WATCHED:
        assert not store.has_listed(WATCHED, ["a", "b"])
        for namespace in ("a", "b"):
            store.replace(kind, namespace, [], "1")
    assert store.has_listed(WATCHED, ["a", "b"])
    assert not store.has_listed(WATCHED, [None])


def test_a_relabelled_child_changes_its_model() -> None:
    store = Store()
    store.put(_model("a"))
    store.put(_model("b"))
    store.put(_body("Pod", "p", 2, model="a"))
    store.put(_body("Pod", "p", 3, model="b"))
    assert store.children("n", "a", POD) == ()
    assert len(store.children("n", "b", POD)) == 1
    assert store.remove(_body("Pod", "p", 4, model="b")) == "u-b"
    assert store.children("n", "b", POD) == ()


def test_an_answer_that_comes_after_the_deletion_brings_nothing_back() -> None:
    store = Store()
    store.put(_body("Deployment", "chat", 5, model="chat"))
    store.remove(_body("Deployment", "chat", 7, model="chat"))
    store.put(_body("Deployment", "chat", 6, model="chat"))
    assert store.find(DEPLOYMENT, "n", "chat") is None
    store.put(_body("Deployment", "chat", 8, model="chat", uid="another"))
    assert store.find(DEPLOYMENT, "n", "chat") is not None
