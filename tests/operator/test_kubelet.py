"""The node and the controllers that the end-to-end tests stand on."""

import base64
import json

import pytest
from support.controllers import HASH, to_create, to_delete
from support.pod_volumes import NotYetError, content, swap


def config(name, **data):
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name, **data):
    coded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "data": coded}


def test_a_volume_changes_all_at_once_and_who_reads_the_old_one_still_can(tmp_path):
    folder = tmp_path / "v"
    swap(folder, {"a": b"1", "keys/b": b"1"}, 0o644, None)
    old = (folder / "..data").resolve()
    swap(folder, {"a": b"2", "c": b"2"}, 0o440, None)
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("..")) == ["a", "c"]
    assert (folder / "a").read_bytes() == b"2"
    assert (folder / "a").stat().st_mode & 0o777 == 0o440
    assert (old / "keys/b").read_bytes() == b"1"
    now = (folder / "..data").resolve()
    swap(folder, {"a": b"2", "c": b"2"}, 0o440, None)
    assert (folder / "..data").resolve() == now


def test_what_a_volume_names_must_be_there():
    objects = {"c": config("c", x="1", y="2")}, {"s": secret("s", k="v")}
    assert content({"configMap": {"name": "c"}}, *objects) == {"x": b"1", "y": b"2"}
    item = {"key": "k", "path": "s/k"}
    assert content({"projected": {"sources": [{"secret": {"name": "s", "items": [item]}}]}}, *objects) == {"s/k": b"v"}
    for volume in ({"secret": {"secretName": "t"}}, {"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}):
        with pytest.raises(NotYetError) as caught:
            content(volume, *objects)
        assert caught.value.reason == "ContainerCreating"


def deployment(replicas, **strategy):
    return {"spec": {"replicas": replicas, "strategy": strategy}}


def pods(text):
    """`R` is ready, `u` is not, `x` is on its way out."""
    made = []
    for letter in text:
        conditions = [{"type": "Ready", "status": "True" if letter == "R" else "False"}]
        metadata = {"name": json.dumps([letter, len(made)]), "labels": {HASH: "h"}}
        metadata |= {"deletionTimestamp": "now"} if letter == "x" else {}
        made.append({"metadata": metadata, "status": {"conditions": conditions}})
    return made


ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


@pytest.mark.parametrize(
    ("strategy", "old", "new", "created", "deleted"),
    [
        ({"type": "Recreate"}, "RR", "", 0, 2),
        ({"type": "Recreate"}, "xx", "", 0, 0),
        ({"type": "Recreate"}, "", "", 2, 0),
        (ROLLING, "RR", "", 0, 1),
        (ROLLING, "Rx", "", 1, 0),
        (ROLLING, "R", "u", 0, 0),
        (ROLLING, "R", "R", 0, 1),
        (ROLLING, "uR", "", 0, 1),
        (ROLLING, "", "RRR", 0, 1),
        (ROLLING, "", "R", 1, 0),
    ],
)
def test_a_deployment_of_two_takes_its_next_step(strategy, old, new, created, deleted):
    made = deployment(2, **strategy)
    before, after = pods(old), pods(new)
    assert to_create(made, before, after) == created
    assert len(to_delete(made, before, after)) == deleted
