"""CustomResourceDefinitions: from one to the kinds it serves, and what the API server refuses of it."""

from collections.abc import Iterator
from typing import Any

import celpy
from support.kube import cel
from support.kube.errors import Cause
from support.kube.kinds import Kind

Body = dict[str, Any]
GROUP = "apiextensions.k8s.io"


def kinds(body: Body) -> list[Kind]:
    """One a served version; the storage version last, so that it is the one found first by name when added first."""
    spec, names = body["spec"], body["spec"]["names"]
    found = []
    for version in spec.get("versions", []):
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        found.append(
            Kind(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                namespaced=spec["scope"] == "Namespaced",
                short=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                has_status="status" in subresources,
                scale=scale and {
                    "spec": scale["specReplicasPath"],
                    "status": scale["statusReplicasPath"],
                    "selector": scale.get("labelSelectorPath", ""),
                },
                has_generation=True,
                needs_version_to_update=True,
                schema=version["schema"]["openAPIV3Schema"],
                columns=tuple(version.get("additionalPrinterColumns", ())),
                is_custom=True,
            )
        )  # fmt: skip
    return found


def accepted(body: Body, now: str) -> Body:
    """With the status by which clients see that it is served."""
    names = body["spec"]["names"]
    filled = {"listKind": f"{names['kind']}List", "singular": names["kind"].lower()} | names
    conditions = [
        {"type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for name, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in body["spec"]["versions"] if version.get("storage")]
    status = {"conditions": conditions, "acceptedNames": filled, "storedVersions": stored}
    spec = {"conversion": {"strategy": "None"}} | body["spec"] | {"names": filled}
    return body | {"spec": spec, "status": status}


def problems(body: Body) -> list[Cause]:
    """What keeps it from being served."""
    spec = body.get("spec", {})
    found = [
        Cause(f"spec.{field}", "Required value", "FieldValueRequired")
        for field in ("group", "names", "scope", "versions")
        if not spec.get(field)
    ]
    if found:
        return found
    wanted = f"{spec['names'].get('plural')}.{spec['group']}"
    if body["metadata"].get("name") != wanted:
        shown = body["metadata"].get("name")
        why = 'must be spec.names.plural+"."+spec.group'
        found.append(Cause("metadata.name", f'Invalid value: "{shown}": {why}'))
    if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
        found.append(Cause("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    for index, version in enumerate(spec["versions"]):
        at = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = version.get("schema", {}).get("openAPIV3Schema")
        if schema is None:
            found.append(Cause(at, "Required value: schemas are required", "FieldValueRequired"))
        else:
            found += _schema(schema, at, is_root=True)
    return found


def _schema(schema: Body, at: str, *, is_root: bool = False) -> Iterator[Cause]:
    """Structural, all the way down."""
    if is_root and schema.get("type") != "object":
        yield Cause(f"{at}.type", f'Invalid value: "{schema.get("type")}": must be object at the root')
    yield from _node(schema, at)
    yield from _rules(schema, at)
    for name, below in schema.get("properties", {}).items():
        if not (is_root and name == "metadata"):
            yield from _schema(below, f"{at}.properties[{name}]")
    for word in ("additionalProperties", "items"):
        if isinstance(schema.get(word), dict):
            yield from _schema(schema[word], f"{at}.{word}")


def _node(schema: Body, at: str) -> Iterator[Cause]:
    """A type everywhere, properties or additionalProperties, items of lists, no word that is not supported."""
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if "type" not in schema and not free:
        yield Cause(f"{at}.type", "Required value: must not be empty for specified object fields", "FieldValueRequired")
    if "type" in schema and schema.get("x-kubernetes-int-or-string"):
        why = "Forbidden: must be empty if x-kubernetes-int-or-string is true"
        yield Cause(f"{at}.type", why, "FieldValueForbidden")
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        why = "Forbidden: additionalProperties and properties are mutual exclusive"
        yield Cause(f"{at}.additionalProperties", why, "FieldValueForbidden")
    if schema.get("type") == "array" and "items" not in schema:
        yield Cause(f"{at}.items", "Required value: must be specified", "FieldValueRequired")
    for word in ("$ref", "definitions", "patternProperties", "discriminator", "const", "if", "prefixItems"):
        if word in schema:
            yield Cause(f"{at}.{word}", f"Forbidden: {word} is not supported", "FieldValueForbidden")
    if schema.get("uniqueItems"):
        yield Cause(f"{at}.uniqueItems", "Forbidden: uniqueItems cannot be set to true", "FieldValueForbidden")


def _rules(schema: Body, at: str) -> Iterator[Cause]:
    for index, rule in enumerate(schema.get("x-kubernetes-validations", [])):
        for word in ("rule", "messageExpression"):
            if word not in rule:
                continue
            try:
                cel.program(rule[word])
            except celpy.CELParseError as error:
                place = f"{at}.x-kubernetes-validations[{index}].{word}"
                yield Cause(place, f'Invalid value: "{rule[word]}": compilation failed: {error.args[0]}')
