"""Every field of the schema, changed in turn: the plan shows it, with the class that the schema gives it."""

from __future__ import annotations

import copy

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.config_documents import read, values_of
from support.played.world import document, reached

from halogend.config.canonical import canonical
from halogend.config.fields import Apply
from halogend.config.schema import fields
from halogend.control.plan import make_plan

HEAD = {
    "apiVersion": "halogen.dev/v1alpha1",
    "allow_empty": True,
    "devices": [{"id": "cpu:0"}, {"id": "cpu:1", "cores": "1"}],
    "server": {"auth": {"keys": [{"name": "a", "file": "/f"}]}},
}
ONE_VALUE = {"apiVersion"}
SECTIONS = {"server.tls", "server.admin_tls"}  # shown as one where only one side has it, else by what is inside
KEY_BY_KEY = "server.auth"  # a key is told by its name and what became of it, never by its file's place
AROUND = [
    field
    for field in fields()
    if not field.path.startswith(("models[]", KEY_BY_KEY)) and field.path not in ONE_VALUE | SECTIONS | {"devices[].id"}
]


def with_value(path, value):
    whole = copy.deepcopy(HEAD)
    *around, key = path.split(".")
    section = whole
    for step in around:
        section = section[step[:-2]][0] if step.endswith("[]") else section.setdefault(step, {})
    if around[:2] in (["server", "tls"], ["server", "admin_tls"]):
        section.update(cert="/c", key="/k")
    section[key] = value
    return read(yaml.safe_dump(whole)).document


@pytest.mark.parametrize("field", AROUND, ids=lambda field: field.path)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_field_outside_the_models_is_shown_with_its_class(field, data):
    old, new = (with_value(field.path, data.draw(values_of(field))) for _ in range(2))
    shown = {each["field"]: each["class"] for each in make_plan({}, {}, (old, new)).server_changes}
    path = field.path.replace("devices[]", "devices[cpu:0]")
    assert shown == ({} if canonical(old) == canonical(new) else {path: field.apply})
    assert make_plan({}, {}, (old, new)) == make_plan({}, {}, (old, new))
    assert make_plan({}, {}, (old, old)).server_changes == ()


def test_a_device_that_comes_or_goes_is_another_thing():
    both, one = with_value("devices[].spare", False), read(yaml.safe_dump({**HEAD, "devices": [{"id": "cpu:0"}]}))
    (change,) = make_plan({}, {}, (one.document, both)).server_changes
    assert change == {"field": "devices[cpu:1]", "old": None, "new": {"id": "cpu:1", "cores": "1"}, "class": "identity"}
    (change,) = make_plan({}, {}, (both, one.document)).server_changes
    assert (change["field"], change["new"]) == ("devices[cpu:1]", None)


NOT_AT_ONCE = {field.path: field.apply for field in fields() if field.apply in (Apply.NEXT_LOAD, Apply.LISTENER)}


def test_l5_the_fields_that_are_not_applied_at_once_are_those_of_the_schema():
    """Whoever adds one is asked to show it below."""
    assert set(NOT_AT_ONCE) == {
        "server.host",
        "server.port",
        "server.admin",
        "models[].mmap_threshold",
        "models[].load_thread_num",
        "models[].load.progress_timeout_s",
        "models[].load.verify",
        "models[].warmup.kernels",
        "models[].warmup.prompt",
    }


async def test_l5_what_waits_for_the_next_load_is_named_so_and_used_by_it(serving):
    there = await serving()
    later = {"load_thread_num": 1, "mmap_threshold": 0.5, "load": {"progress_timeout_s": 7.0}}
    later |= {"warmup": {"kernels": False, "prompt": "Hi"}}
    receipt = await reached(there.edit(document(there.model("a", **later))))
    (record,) = receipt.models.values()
    named = {f"models[].{each['field']}": each["class"] for each in record.changes}
    assert named == {path: cls for path, cls in NOT_AT_ONCE.items() if path in named}
    assert len(named) == 5
    assert (there.stage.loads(), there.unit("a").serving.spec.progress_timeout_s) == (1, 60.0)
    await reached(there.edit(document(there.model("a", "b", **later))))
    assert there.unit("a").serving.spec.progress_timeout_s == 7.0
    assert there.unit("a").serving.spec.warmup_prompt == "Hi"
    assert there.unit("a").serving.spec.engine.mmap_threshold == 0.5


async def test_l5_a_listener_that_is_bound_anew_is_named_so(serving):
    there = await serving()
    receipt = await reached(there.edit(document(there.model("a"), server={"port": 8001})))
    assert [(each["field"], each["class"]) for each in receipt.server_changes] == [("server.port", "listener")]
    assert there.sockets.serving.port == 8001
