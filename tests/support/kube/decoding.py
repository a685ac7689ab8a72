"""From what a caller sent to the object that its kind can hold: unknown fields, wrong types, nulls, defaults.

An apply is stricter than other writes and says so less politely: a field that the kind does not declare is a failed
conversion, status 500, as the API server has it.
"""

from typing import Any

from support.kube import builtins, structural
from support.kube.builtin_schemas import SCHEMAS
from support.kube.errors import ApiError, bad_request
from support.kube.kinds import Kind
from support.kube.requests import Ask
from support.kube.store import Object

Body = dict[str, Any]


def _schema(kind: Kind) -> Body | None:
    return kind.schema if kind.is_custom else SCHEMAS.get(kind.kind)


def declared(ask: Ask, body: Body) -> Body:
    """An applied body, as it is.

    Raises:
        ApiError: 500, it has a field that the kind does not declare, or one of another type.
    """
    schema = _schema(ask.kind)
    if schema is None:
        return body
    _, unknown = structural.prune(schema, body)
    said = [f".{place}: field not declared in schema" for place in unknown]
    if not said and not ask.kind.is_custom:
        said = [
            f".{cause.field}: {cause.message}" for cause in structural.problems(schema, builtins.without_empty(body))
        ]
    if said:
        what = f"{ask.namespace}/{ask.name}; {ask.kind.api_version}, Kind={ask.kind.kind}"
        raise ApiError(500, "", f"failed to create typed patch object ({what}): {'; '.join(said)}")
    return body


def decoded(ask: Ask, body: Body, before: Object | None) -> Body:
    """What can be stored of any other write.

    Raises:
        ApiError: 400, an unknown field and the caller is strict, or a value that does not fit a built-in kind.
    """
    body = body | {"metadata": _metadata(body["metadata"])}
    schema = _schema(ask.kind)
    if schema is not None:
        body = _pruned(ask, schema, body)
    if not ask.kind.is_custom:
        _fits(ask, schema, body)
        return builtins.normal(ask.kind.kind, body, before)
    return dict(structural.defaulted(schema or {}, structural.without_nulls(schema or {}, body)))


def _metadata(meta: Body) -> Body:
    optional = ("labels", "annotations", "ownerReferences", "finalizers")
    return {name: value for name, value in meta.items() if value or name not in optional}


def _pruned(ask: Ask, schema: Body, body: Body) -> Body:
    pruned, unknown = structural.prune(schema, body)
    said = [f'unknown field "{place}"' for place in unknown]
    if said and ask.validation == "Strict":
        raise _refused(ask, f"strict decoding error: {', '.join(said)}")
    if ask.validation == "Warn":
        ask.warnings += said
    return dict(pruned)


def _fits(ask: Ask, schema: Body | None, body: Body) -> None:
    for cause in structural.problems(schema or {}, builtins.without_empty(body)):
        raise _refused(ask, f"json: cannot unmarshal into Go struct field .{cause.field}: {cause.message}")


def _refused(ask: Ask, why: str) -> ApiError:
    kind = ask.kind
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
