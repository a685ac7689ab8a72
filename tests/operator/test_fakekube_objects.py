"""Objects in the stand-in: revisions, generations, conflicts, subresources, deletion, owners."""

import pytest
from support.kube.errors import ApiError
from support.kube_samples import config_map, deployment, pod, widget, widget_crd


async def test_a_new_object_has_an_identity_and_its_first_generation(widgets, wire):
    status, made = await wire.send("POST", wire.path("Widget"), widget(color="red"))
    assert status == 201
    meta = made["metadata"]
    assert meta["uid"]
    assert meta["generation"] == 1
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    assert made["spec"] == {"color": "red", "replicas": 1}
    status, again = await wire.send("POST", wire.path("Widget"), widget())
    assert (status, again["reason"]) == (409, "AlreadyExists")
    assert again["message"] == 'widgets.test.dev "w" already exists'


async def test_a_generation_counts_changes_of_the_spec_only(widgets, wire):
    await wire.send("POST", wire.path("Widget"), widget())
    _, labelled = await wire.merge(wire.path("Widget", "w"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    _, edited = await wire.merge(wire.path("Widget", "w"), {"spec": {"color": "blue"}})
    assert edited["metadata"]["generation"] == 2
    _, told = await wire.merge(wire.path("Widget", "w", "status"), {"status": {"x": 1}})
    assert told["metadata"]["generation"] == 2
    assert int(told["metadata"]["resourceVersion"]) > int(edited["metadata"]["resourceVersion"])


async def test_a_write_that_changes_nothing_is_none(widgets, wire):
    _, made = await wire.send("POST", wire.path("Widget"), widget(color="red"))
    _, same = await wire.merge(wire.path("Widget", "w"), {"spec": {"color": "red"}})
    assert same == made
    _, put = await wire.send("PUT", wire.path("Widget", "w"), made)
    assert put == made


async def test_status_and_spec_are_written_apart(widgets, wire):
    await wire.send("POST", wire.path("Widget"), widget() | {"status": {"sneaked": True}})
    _, made = await wire.get(wire.path("Widget", "w"))
    assert "status" not in made
    _, by_main = await wire.merge(wire.path("Widget", "w"), {"status": {"x": 1}, "spec": {"color": "red"}})
    assert "status" not in by_main
    change = {"status": {"x": 1}, "spec": {"color": "blue"}, "metadata": {"labels": {"a": "b"}}}
    _, by_status = await wire.merge(wire.path("Widget", "w", "status"), change)
    assert by_status["status"] == {"x": 1}
    assert by_status["spec"]["color"] == "red"
    assert "labels" not in by_status["metadata"]


async def test_a_stale_resource_version_is_a_conflict(widgets, wire):
    _, made = await wire.send("POST", wire.path("Widget"), widget())
    await wire.merge(wire.path("Widget", "w"), {"spec": {"color": "red"}})
    status, refused = await wire.send("PUT", wire.path("Widget", "w"), made)
    assert (status, refused["reason"]) == (409, "Conflict")
    assert refused["message"].startswith('Operation cannot be fulfilled on widgets.test.dev "w": the object has been')
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"color": "blue"}}
    assert (await wire.merge(wire.path("Widget", "w"), stale))[0] == 409


async def test_a_custom_kind_is_replaced_only_with_its_resource_version(widgets, wire):
    await wire.send("POST", wire.path("Widget"), widget())
    status, refused = await wire.send("PUT", wire.path("Widget", "w"), widget(color="red"))
    assert (status, refused["reason"]) == (422, "Invalid")
    assert "must be specified for an update" in refused["message"]


async def test_a_failed_test_in_a_json_patch_is_invalid_and_changes_nothing(widgets, wire):
    _, made = await wire.send("POST", wire.path("Widget"), widget())
    stale = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
    write = {"op": "add", "path": "/status", "value": {"x": 1}}
    status, refused = await wire.json_patch(wire.path("Widget", "w", "status"), stale, write)
    assert (status, refused["reason"]) == (422, "Invalid")
    assert refused["message"] == "the server rejected our request due to an error in our request"
    fresh = stale | {"value": made["metadata"]["resourceVersion"]}
    status, told = await wire.json_patch(wire.path("Widget", "w", "status"), fresh, write)
    assert (status, told["status"]) == (200, {"x": 1})


async def test_a_dry_run_answers_and_stores_nothing(widgets, wire):
    status, _ = await wire.send("POST", wire.path("Widget"), widget(), dryRun="All")
    assert status == 201
    assert (await wire.get(wire.path("Widget", "w")))[0] == 404


async def test_a_finalizer_holds_an_object_that_is_being_deleted(widgets, wire):
    held = widget()
    held["metadata"]["finalizers"] = ["test.dev/held"]
    await wire.send("POST", wire.path("Widget"), held)
    status, going = await wire.send("DELETE", wire.path("Widget", "w"))
    assert status == 200
    assert going["metadata"]["deletionTimestamp"]
    assert going["metadata"]["generation"] == 2
    await wire.merge(wire.path("Widget", "w"), {"metadata": {"finalizers": None}})
    assert (await wire.get(wire.path("Widget", "w")))[0] == 404


async def test_deletion_asks_for_the_object_that_was_meant(widgets, wire):
    _, made = await wire.send("POST", wire.path("Widget"), widget())
    other = {"preconditions": {"uid": "another"}}
    assert (await wire.send("DELETE", wire.path("Widget", "w"), other))[0] == 409
    status, gone = await wire.send("DELETE", wire.path("Widget", "w"))
    assert (status, gone["status"]) == (200, "Success")
    assert gone["details"]["uid"] == made["metadata"]["uid"]
    assert (await wire.send("DELETE", wire.path("Widget", "w")))[0] == 404


async def test_what_an_object_owned_goes_with_it_and_what_it_did_not_stays(widgets):
    owner = widgets.objects.create(widget())
    widgets.objects.create(config_map("owned", owner=owner))
    widgets.objects.create(config_map("free"))
    widgets.objects.delete("Widget", "w")
    await widgets.until(lambda: widgets.objects.find("ConfigMap", "owned") is None)
    assert widgets.objects.find("ConfigMap", "free")


async def test_a_child_made_after_its_owner_is_gone_does_not_live(widgets):
    owner = widgets.objects.create(widget())
    widgets.objects.delete("Widget", "w")
    widgets.objects.create(config_map("late", owner=owner))
    await widgets.until(lambda: widgets.objects.find("ConfigMap", "late") is None)


@pytest.mark.parametrize(("propagation", "is_left"), [("Orphan", True), ("Foreground", False), ("Background", False)])
async def test_how_a_deletion_is_passed_on(widgets, propagation, is_left):
    owner = widgets.objects.create(widget())
    widgets.objects.create(config_map("owned", owner=owner))
    widgets.objects.delete("Widget", "w", propagation=propagation)
    await widgets.until(lambda: widgets.objects.find("Widget", "w") is None)
    await widgets.until(lambda: (widgets.objects.find("ConfigMap", "owned") is not None) is is_left)
    if is_left:
        assert "ownerReferences" not in widgets.objects.get("ConfigMap", "owned")["metadata"]


async def test_a_pod_that_runs_is_given_its_grace(kube):
    kube.objects.create(pod("waiting"))
    kube.objects.delete("Pod", "waiting")
    assert kube.objects.find("Pod", "waiting") is None
    kube.objects.create(pod("running", nodeName="n", terminationGracePeriodSeconds=7))
    kube.objects.delete("Pod", "running")
    assert kube.objects.get("Pod", "running")["metadata"]["deletionGracePeriodSeconds"] == 7
    kube.objects.delete("Pod", "running", grace_s=0)
    assert kube.objects.find("Pod", "running") is None


async def test_a_namespace_goes_with_all_that_is_in_it(kube):
    kube.namespace("models")
    kube.objects.create(config_map(namespace="models"))
    kube.objects.delete("Namespace", "models")
    with pytest.raises(ApiError, match="being terminated"):
        kube.objects.create(config_map("late", namespace="models"))
    await kube.until(lambda: kube.objects.find("Namespace", "models") is None)
    assert kube.objects.list("ConfigMap", "models") == []


async def test_nothing_is_made_in_a_namespace_that_is_not_there(kube):
    with pytest.raises(ApiError, match='namespaces "nowhere" not found') as refused:
        kube.objects.create(config_map(namespace="nowhere"))
    assert refused.value.status == 404


async def test_with_its_definition_a_custom_kind_goes(widgets, wire):
    widgets.objects.create(widget())
    widgets.objects.delete("CustomResourceDefinition", "widgets.test.dev")
    assert (await wire.get(wire.path("Widget")))[0] == 404
    widgets.objects.create(widget_crd())
    assert widgets.objects.list("Widget") == []


async def test_scale_reads_and_writes_the_replicas_alone(widgets, wire):
    await wire.send("POST", wire.path("Widget"), widget(color="red"))
    await wire.merge(wire.path("Widget", "w", "status"), {"status": {"replicas": 1, "selector": "a=b"}})
    _, scale = await wire.get(wire.path("Widget", "w", "scale"))
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 1, "selector": "a=b"},
    )
    _, scaled = await wire.merge(wire.path("Widget", "w", "scale"), {"spec": {"replicas": 0}})
    assert scaled["spec"] == {"replicas": 0}
    _, found = await wire.get(wire.path("Widget", "w"))
    assert found["spec"] == {"color": "red", "replicas": 0}
    assert found["metadata"]["generation"] == 2
    status, _ = await wire.send("PUT", wire.path("Widget", "w", "scale"), scale | {"spec": {"replicas": 3}})
    assert status == 409


async def test_a_deployment_comes_back_with_defaults_and_canonical_quantities(kube):
    made = kube.objects.create(deployment(resources={"limits": {"cpu": "0.5", "memory": "1024Mi"}}))
    spec = made["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi"}
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


async def test_a_selector_may_not_change_and_must_fit(kube):
    made = kube.objects.create(deployment())
    made["spec"]["selector"]["matchLabels"] = {"app": "other"}
    with pytest.raises(ApiError) as refused:
        kube.objects.update(made)
    assert refused.value.status == 422
    assert "field is immutable" in refused.value.message
    assert "does not match template" in refused.value.message


async def test_a_list_names_neither_kind_nor_version_of_built_in_items(widgets, wire):
    widgets.objects.create(config_map())
    widgets.objects.create(widget())
    _, maps = await wire.get(wire.path("ConfigMap"))
    assert (maps["kind"], maps["items"][0].get("kind")) == ("ConfigMapList", None)
    _, custom = await wire.get(wire.path("Widget"))
    assert custom["items"][0]["kind"] == "Widget"


async def test_a_list_in_pages_is_the_list_of_its_first_page(kube, wire):
    for number in range(5):
        kube.objects.create(config_map(f"c{number}"))
    _, page = await wire.get(wire.path("ConfigMap"), limit="2")
    assert page["metadata"]["remainingItemCount"] == 3
    kube.objects.create(config_map("c9"))
    names = [item["metadata"]["name"] for item in page["items"]]
    while token := page["metadata"].get("continue"):
        _, following = await wire.get(wire.path("ConfigMap"), limit="2", **{"continue": token})
        assert following["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
        page = following
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    _, page = await wire.get(wire.path("ConfigMap"), limit="2")
    kube.objects.create(config_map("c10"))
    kube.expire_watches()
    status, refused = await wire.get(wire.path("ConfigMap"), **{"continue": page["metadata"]["continue"]})
    assert (status, refused["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=a", ["one"]),
        ("app!=a", ["three", "two"]),
        ("app in (a, b)", ["one", "two"]),
        ("app notin (a),app", ["two"]),
        ("!app", ["three"]),
    ],
)
async def test_labels_select(kube, wire, selector, names):
    for name, label in (("one", {"app": "a"}), ("two", {"app": "b"}), ("three", {})):
        body = config_map(name)
        body["metadata"]["labels"] = label
        kube.objects.create(body)
    _, found = await wire.get(wire.path("ConfigMap"), labelSelector=selector)
    assert [item["metadata"]["name"] for item in found["items"]] == names


async def test_only_fields_that_are_indexed_select(kube, wire):
    kube.objects.create(config_map("one"))
    kube.objects.create(config_map("two"))
    _, found = await wire.get(wire.path("ConfigMap"), fieldSelector="metadata.name=two")
    assert [item["metadata"]["name"] for item in found["items"]] == ["two"]
    assert (await wire.get(wire.path("ConfigMap"), fieldSelector="data.x=1"))[0] == 400


async def test_who_has_no_token_is_not_let_in(kube, wire):
    kube.tokens = {"good"}
    assert (await wire.get(wire.path("ConfigMap")))[0] == 401
    wire.session.headers["Authorization"] = "Bearer good"
    assert (await wire.get(wire.path("ConfigMap")))[0] == 200


async def test_only_json_and_yaml_are_read(kube, wire):
    status, refused = await wire.send(
        "POST", wire.path("ConfigMap"), config_map(), "application/vnd.kubernetes.protobuf"
    )
    assert (status, refused["reason"]) == (415, "UnsupportedMediaType")
    status, refused = await wire.send("PATCH", wire.path("ConfigMap", "c"), {}, "application/json")
    assert status == 415
    assert "application/apply-patch+yaml" in refused["message"]


async def test_all_namespaces_are_listed(kube, wire):
    _, found = await wire.get("/api/v1/namespaces")
    assert "default" in [item["metadata"]["name"] for item in found["items"]]
    assert (await wire.get("/api/v1/namespaces/default"))[1]["status"] == {"phase": "Active"}


async def test_events_are_the_same_in_both_apis(kube, wire):
    new = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "type": "Normal",
        "reason": "Told",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    status, made = await wire.send("POST", "/apis/events.k8s.io/v1/namespaces/default/events", new)
    assert (status, made["note"], made["apiVersion"]) == (201, "hello", "events.k8s.io/v1")
    _, core = await wire.get("/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=p")
    assert [item["message"] for item in core["items"]] == ["hello"]
