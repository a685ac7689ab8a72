"""Custom kinds in the stand-in: pruning, defaults, validation, CEL, in the words of the API server."""

import pytest
from support.kube import cel, structural
from support.kube.errors import ApiError
from support.kube_samples import deployment, widget, widget_crd


def _refusal(kube, body):
    with pytest.raises(ApiError) as refused:
        kube.objects.create(body)
    assert refused.value.status == 422
    return refused.value.message


async def test_unknown_fields_are_dropped_and_said(widgets, wire):
    status, made = await wire.send("POST", wire.path("Widget"), widget(colour="red", free={"any": {"thing": 1}}))
    assert status == 201
    assert made["spec"] == {"replicas": 1, "free": {"any": {"thing": 1}}}
    status, refused = await wire.send("POST", wire.path("Widget"), widget("x", colour="red"), fieldValidation="Strict")
    assert status == 400
    assert refused["message"].endswith('strict decoding error: unknown field "spec.colour"')


async def test_an_apply_of_an_undeclared_field_fails_whatever_it_asks_for(widgets, wire):
    for _ in range(2):
        status, refused = await wire.apply(wire.path("Widget", "w"), widget(colour="red"))
        assert status == 500
        assert refused["message"].endswith("Kind=Widget): .spec.colour: field not declared in schema")
        assert "reason" not in refused
        assert (await wire.apply(wire.path("Widget", "w"), widget()))[0] < 300


async def test_built_in_kinds_have_fields_too(kube, wire):
    status, made = await wire.send("POST", wire.path("Deployment"), deployment(imagePullPolice="Always"))
    assert status == 201
    assert "imagePullPolice" not in made["spec"]["template"]["spec"]["containers"][0]
    body = deployment("e", imagePullPolice="Always")
    status, refused = await wire.send("POST", wire.path("Deployment"), body, fieldValidation="Strict")
    assert status == 400
    assert 'unknown field "spec.template.spec.containers[0].imagePullPolice"' in refused["message"]
    assert (await wire.apply(wire.path("Deployment", "e"), body))[0] == 500
    status, refused = await wire.send("POST", wire.path("Deployment"), deployment("f", env=[{"name": "A", "value": 1}]))
    assert status == 400
    assert ".spec.template.spec.containers[0].env[0].value" in refused["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"replicas": -1},
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
        ),
        (
            {"replicas": "2"},
            'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        ),
        ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        ({"limit": 1.5}, "spec.limit in body must be of type integer,string"),
        ({"parts": [{"size": 1}]}, "spec.parts[0].name: Required value"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, 'spec.parts[1]: Duplicate value: {"name": "a"}'),
        ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
        ({"soft": 2, "hard": 1}, 'spec: Invalid value: "object": soft 2.0 is not below hard'),
    ],
)
async def test_what_is_wrong_is_said_with_its_place(widgets, spec, message):
    told = _refusal(widgets, widget(**spec))
    assert told.startswith('Widget.test.dev "w" is invalid: ')
    assert message in told


async def test_all_problems_are_told_at_once(widgets):
    told = _refusal(widgets, widget(replicas=-1, tags=["a", "a"]))
    assert "[spec.replicas: " in told
    assert ", spec.tags[1]: " in told


async def test_rules_wait_until_the_types_are_right(widgets):
    told = _refusal(widgets, widget(color="green", soft=2, hard=1))
    assert "not below hard" not in told
    assert "some validation rules were not checked" in told


async def test_a_transition_rule_sees_the_old_item_of_the_same_key(widgets):
    made = widgets.objects.create(widget(parts=[{"name": "a", "size": 5}]))
    made["spec"]["parts"] = [{"name": "b", "size": 1}, {"name": "a", "size": 6}]
    made = widgets.objects.update(made)
    made["spec"]["parts"][1]["size"] = 2
    with pytest.raises(ApiError) as refused:
        widgets.objects.update(made)
    assert 'spec.parts[1].size: Invalid value: "object": a part does not shrink' in refused.value.message


async def test_nulls_give_way_to_defaults(widgets):
    assert widgets.objects.create(widget(replicas=None, color=None))["spec"] == {"replicas": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda schema: schema.pop("type"), "must be object at the root"),
        (
            lambda schema: schema["properties"]["spec"]["properties"].update(x={}),
            "must not be empty for specified object",
        ),
        (
            lambda schema: schema["properties"]["spec"].update({"x-kubernetes-validations": [{"rule": "self. ="}]}),
            "compilation failed",
        ),
    ],
)
async def test_a_definition_that_is_not_structural_is_refused(kube, change, message):
    crd = widget_crd()
    change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    assert message in _refusal(kube, crd)


@pytest.mark.parametrize(
    ("name", "written"), [("size", "size"), ("max-size", "max__dash__size"), ("a.b", "a__dot__b"), ("in", "__in__")]
)
def test_names_are_escaped_in_rules(name, written):
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": f"self.{written} > 1"}],
    }
    assert list(cel.Rules().problems(schema, {name: 2})) == []
    assert [cause.text for cause in cel.Rules().problems(schema, {name: 1}, at="spec")] == [
        f'spec: Invalid value: "object": failed rule: self.{written} > 1'
    ]


def test_a_rule_that_cannot_be_evaluated_is_a_failure():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.a > 1"}],
    }
    (cause,) = cel.Rules().problems(schema, {})
    assert "evaluating rule" in cause.message


def test_defaults_fill_below_what_is_there_and_below_defaults():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 2}}},
            "c": {
                "type": "array",
                "items": {"type": "object", "properties": {"d": {"type": "string", "default": "x"}}},
            },
        },
    }
    assert structural.defaulted(schema, {"c": [{}]}) == {"a": {"b": 2}, "c": [{"d": "x"}]}


@pytest.mark.parametrize(
    ("schema", "value", "is_good"),
    [
        ({"type": "integer"}, True, False),
        ({"type": "integer"}, 2.0, True),
        ({"type": "string", "pattern": "^a+$"}, "ab", False),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", True),
        ({"type": "string", "format": "date-time"}, "yesterday", False),
        ({"type": "integer", "format": "int32"}, 2**31, False),
        ({"type": "string", "nullable": True}, None, True),
        ({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1}, {"a": 1, "b": 2}, False),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, "1", True),
        ({"type": "array", "maxItems": 1, "items": {"type": "string"}}, ["a", "b"], False),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, False),
    ],
)
def test_values_are_held_to_their_schema(schema, value, is_good):
    assert (not list(structural.problems(schema, value, "x"))) is is_good


def test_a_rule_at_the_root_sees_the_name_and_a_failure_is_told_each_time():
    rule = {"rule": "self.metadata.name.size() < 3", "message": "too long a name"}
    schema = {"type": "object", "properties": {"metadata": {"type": "object"}}, "x-kubernetes-validations": [rule]}
    rules = cel.Rules()
    for _ in range(2):
        assert list(rules.problems(schema, {"metadata": {"name": "ab"}})) == []
        assert len(list(rules.problems(schema, {"metadata": {"name": "abc"}}))) == 1
