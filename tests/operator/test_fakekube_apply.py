"""Server-side apply in the stand-in: who holds a field, what goes when its holder lets go, conflicts and force."""

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kube.errors import ApiError
from support.kube.kinds import Kinds
from support.kube.objects import Objects
from support.kube.ownership import from_wire, to_wire
from support.kube.store import Store
from support.kube.writes import Writes
from support.kube_samples import config_map, deployment, widget


def _managers(body):
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in body["metadata"]["managedFields"]}


async def test_apply_makes_what_is_not_there_and_then_writes_nothing(kube, wire):
    body = deployment()
    status, made = await wire.apply(wire.path("Deployment", "d"), body)
    assert status == 201
    status, again = await wire.apply(wire.path("Deployment", "d"), body)
    assert (status, again) == (200, made)


async def test_a_quantity_written_otherwise_is_no_change_at_any_later_time(kube, wire):
    body = deployment(resources={"limits": {"cpu": "0.5"}})
    _, made = await wire.apply(wire.path("Deployment", "d"), body)
    kube.clock = lambda: datetime(2040, 1, 1, tzinfo=UTC)
    assert (await wire.apply(wire.path("Deployment", "d"), body))[1] == made
    body["metadata"]["labels"] = {"a": "b"}
    _, changed = await wire.apply(wire.path("Deployment", "d"), body)
    assert changed["metadata"]["managedFields"][0]["time"] == "2040-01-01T00:00:00Z"


async def test_an_applier_owns_what_it_wrote_and_no_default(kube, wire):
    _, made = await wire.apply(wire.path("Deployment", "d"), deployment())
    ((who, fields),) = _managers(made).items()
    assert who == ("applier", "Apply")
    assert "f:strategy" not in fields["f:spec"]
    containers = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert set(containers) == {'k:{"name":"main"}'}
    assert "f:imagePullPolicy" not in containers['k:{"name":"main"}']


async def test_a_field_its_only_applier_drops_goes_and_a_shared_one_stays(kube, wire):
    path = wire.path("ConfigMap", "c")
    await wire.apply(path, config_map(mine="1", shared="2"))
    await wire.apply(path, config_map(shared="2"), manager="other")
    _, found = await wire.apply(path, config_map(new="3"))
    assert found["data"] == {"shared": "2", "new": "3"}


async def test_an_item_of_a_keyed_list_goes_with_its_applier_alone(kube, wire):
    path = wire.path("Deployment", "d")
    both = deployment(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    await wire.apply(path, both)
    extra = deployment(env=[{"name": "C", "value": "3"}])
    await wire.apply(path, extra, manager="other")
    _, found = await wire.apply(path, deployment(env=[{"name": "B", "value": "2"}]))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert [variable["name"] for variable in container["env"]] == ["B", "C"]


async def test_a_field_of_another_is_a_conflict_unless_forced(kube, wire):
    path = wire.path("ConfigMap", "c")
    await wire.apply(path, config_map(key="1"), manager="first")
    status, refused = await wire.apply(path, config_map(key="2"), manager="second")
    assert (status, refused["reason"]) == (409, "Conflict")
    assert refused["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.key'
    assert refused["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    status, same = await wire.apply(path, config_map(key="1"), manager="second")
    assert status == 200
    assert len(_managers(same)) == 2
    status, forced = await wire.apply(path, config_map(key="2"), manager="second", force="true")
    assert (status, forced["data"]) == (200, {"key": "2"})
    assert set(_managers(forced)) == {("second", "Apply")}


async def test_an_update_takes_the_fields_it_changes(kube, wire):
    path = wire.path("Deployment", "d")
    await wire.apply(path, deployment() | {"spec": deployment()["spec"] | {"replicas": 2}})
    _, found = await wire.merge(path, {"spec": {"replicas": 5}}, fieldManager="hand")
    assert "f:replicas" not in _managers(found)["applier", "Apply"]["f:spec"]
    assert _managers(found)["hand", "Update"] == {"f:spec": {"f:replicas": {}}}
    status, refused = await wire.apply(path, deployment() | {"spec": deployment()["spec"] | {"replicas": 2}})
    assert status == 409
    assert 'conflict with "hand" using apps/v1: .spec.replicas' in refused["message"]
    _, let_go = await wire.apply(path, deployment())
    assert let_go["spec"]["replicas"] == 5


async def test_an_apply_names_its_manager_and_no_managed_fields(kube, wire):
    path = wire.path("ConfigMap", "c")
    status, refused = await wire.apply(path, config_map(), manager="")
    assert (status, refused["reason"]) == (422, "Invalid")
    assert "fieldManager: Required value: is required for apply patch" in refused["message"]
    _, made = await wire.apply(path, config_map())
    assert (await wire.apply(path, made))[0] == 400


async def test_an_apply_with_a_stale_resource_version_is_a_conflict(kube, wire):
    path = wire.path("ConfigMap", "c")
    await wire.apply(path, config_map(key="1"))
    stale = config_map(key="2")
    stale["metadata"]["resourceVersion"] = "1"
    assert (await wire.apply(path, stale))[0] == 409


async def test_a_default_nobody_holds_stays_in_the_way_of_another_strategy(kube, wire):
    """The trap for who applies: what the server filled in is not theirs to lose by leaving it out."""
    path = wire.path("Deployment", "d")
    await wire.apply(path, deployment())
    recreate = deployment()
    recreate["spec"]["strategy"] = {"type": "Recreate"}
    status, refused = await wire.apply(path, recreate)
    assert status == 422
    assert "may not be specified when strategy `type` is 'Recreate'" in refused["message"]
    recreate["spec"]["strategy"]["rollingUpdate"] = None
    status, found = await wire.apply(path, recreate)
    assert (status, found["spec"]["strategy"]) == (200, {"type": "Recreate"})


async def test_status_is_applied_at_its_own_place(widgets, wire):
    path = wire.path("Widget", "w")
    _, made = await wire.apply(path, widget(color="red") | {"status": {"x": 1}})
    assert "status" not in made
    assert "f:status" not in _managers(made)["applier", "Apply"]
    _, told = await wire.apply(wire.path("Widget", "w", "status"), widget(color="blue") | {"status": {"x": 1}})
    assert (told["spec"]["color"], told["status"]) == ("red", {"x": 1})
    _, again = await wire.apply(path, widget(color="red"))
    assert again["status"] == {"x": 1}


async def test_sets_of_several_appliers_are_one(widgets, wire):
    path = wire.path("Widget", "w")
    await wire.apply(path, widget(tags=["a", "b"]))
    _, found = await wire.apply(path, widget(tags=["b", "c"]), manager="other")
    assert found["spec"]["tags"] == ["a", "b", "c"]
    _, found = await wire.apply(path, widget(tags=["a"]))
    assert found["spec"]["tags"] == ["a", "b", "c"]
    _, found = await wire.apply(path, widget(tags=[]), manager="other")
    assert found["spec"]["tags"] == ["a"]


@pytest.mark.parametrize("body", [{}, {"f:a": {}}, {"f:a": {'k:{"n":"x"}': {".": {}, "f:b": {}}}, "f:c": {"v:1": {}}}])
def test_fields_survive_their_wire_form(body):
    assert to_wire(from_wire(body)) == body


_DATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), st.sampled_from(["one", "two", "three"]), _DATA, st.booleans()),
        st.tuples(
            st.just("update"),
            st.just("hand"),
            st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", None])),
            st.just(False),
        ),
    ),
    max_size=12,
)


class _Naive:
    """A map whose every key has owners: what server-side apply means, without paths."""

    def __init__(self):
        self.values, self.owners = {}, {}

    def apply(self, who, wanted, force):
        changed = {key for key, value in wanted.items() if self.values.get(key) != value}
        if not force and any(self.owners.get(key, set()) - {who} for key in changed):
            return False
        for key in [key for key, owners in self.owners.items() if who in owners and key not in wanted]:
            self.owners[key].discard(who)
            if not self.owners[key]:
                del self.owners[key], self.values[key]
        for key, value in wanted.items():
            self.owners[key] = {who} if key in changed else self.owners[key] | {who}
            self.values[key] = value
        return True

    def update(self, who, change):
        for key, value in change.items():
            if value is None:
                self.values.pop(key, None)
                self.owners.pop(key, None)
            elif self.values.get(key) != value:
                self.values[key], self.owners[key] = value, {who}


def _owners(body):
    found = {}
    for entry in body["metadata"].get("managedFields", []):
        for key in entry["fieldsV1"].get("f:data", {}):
            found.setdefault(key.removeprefix("f:"), set()).add(entry["manager"])
    return found


@given(_STEPS)
def test_appliers_and_others_agree_with_a_naive_model(steps):
    store, kinds, naive = Store(), Kinds(), _Naive()
    objects = Objects(store, kinds, Writes(store, kinds, lambda: datetime(2026, 1, 1, tzinfo=UTC)))
    objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    objects.create(config_map())
    for how, who, data, force in steps:
        if how == "update":
            naive.update(who, data)
            objects.patch("ConfigMap", "c", {"data": data}, author=who)
        else:
            is_taken = naive.apply(who, data, force)
            with contextlib.nullcontext() if is_taken else pytest.raises(ApiError, match="Apply failed"):
                objects.apply(config_map(**data), author=who, force=force)
        found = objects.get("ConfigMap", "c")
        assert found.get("data", {}) == naive.values
        assert _owners(found) == naive.owners
