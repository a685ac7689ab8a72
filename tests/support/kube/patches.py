"""JSON patch, JSON merge patch and strategic merge patch: from an object and a patch to the object it asks for."""

import copy
from typing import Any

import jsonpatch
import jsonpointer
from support.kube.errors import bad_request, patch_failed
from support.kube.kinds import Kind
from support.kube.shapes import item_key, shape

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ALL = [JSON, MERGE, STRATEGIC, APPLY]


def json_patch(live: dict[str, Any], operations: Any) -> dict[str, Any]:
    """RFC 6902.

    Raises:
        ApiError: 400 for what is no patch; 422 for one whose test fails or whose path is not there.
    """
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        patched = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(live))
    except (jsonpatch.JsonPatchConflict, jsonpatch.JsonPatchTestFailed, jsonpointer.JsonPointerException):
        raise patch_failed() from None
    except jsonpatch.InvalidJsonPatch as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if not isinstance(patched, dict):
        raise bad_request("the patched object is no object")
    return patched


def merge_patch(live: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic(kind: Kind, live: Any, patch: Any, path: tuple[str, ...] = ()) -> Any:
    """Merge patch in which the lists that Kubernetes' types key are merged by their keys.

    Knows `$patch: replace | delete`, `$retainKeys` and `$deleteFromPrimitiveList/…`; `$setElementOrder/…` is ignored
    (new items come last).
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {name: copy.deepcopy(value) for name, value in patch.items() if name != "$patch"}
    merged = dict(live) if isinstance(live, dict) else {}
    if "$retainKeys" in patch:
        merged = {name: value for name, value in merged.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            merged[field] = [item for item in merged.get(field, []) if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(name, None)
        else:
            merged[name] = _strategic_value(kind, merged.get(name), value, (*path, name))
    return merged


def _strategic_value(kind: Kind, live: Any, value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return strategic(kind, live, value, path)
    if not isinstance(value, list):
        return value
    how = shape(kind, path, value)
    if how.is_set:
        return [*(live or []), *(item for item in value if item not in (live or []))]
    if not how.keys or not all(isinstance(item, dict) for item in value):
        return copy.deepcopy(value)
    return _by_keys(kind, live or [], value, path)


def _by_keys(kind: Kind, live: list[Any], patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    keys = shape(kind, path, patch).keys
    if {"$patch": "replace"} in patch:
        return [item for item in patch if "$patch" not in item]
    merged = {item_key(item, keys): item for item in live}
    for item in patch:
        key = item_key(item, keys)
        if item.get("$patch") == "delete":
            merged.pop(key, None)
        else:
            merged[key] = strategic(kind, merged.get(key), item, (*path, "[]"))
    return list(merged.values())
