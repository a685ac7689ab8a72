"""What the headers of a pushed document say: its type, what it must replace, whose it is."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

from halogend.control.history import Origin
from halogend.control.push import LEAST_DIGITS, Push
from halogend.control.requests import RequestError
from halogend.control.source import Content

ORIGIN = "halogen-origin"
_TYPES = frozenset(
    {
        *("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain"),
        *("application/json", "application/octet-stream"),
        "application/x-www-form-urlencoded",  # what curl sends where it is not told
    }
)
_REVISION = re.compile(rf'"(?P<revision>[0-9a-f]{{{LEAST_DIGITS},64}})"')
_ORIGIN = re.compile(r"\s*uid=(?P<uid>[A-Za-z0-9._:/-]{1,128})\s*,\s*generation=(?P<generation>[0-9]{1,18})\s*")
_MOST_REVISIONS = 16


def push_of(headers: Headers, data: bytes, file: str) -> Push:
    """Raises RequestError bad_content_type or invalid_value."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind not in _TYPES:
        text = f"A document is YAML or JSON; the content type `{kind}` is neither. Send application/yaml or JSON."
        raise RequestError("bad_content_type", text, param="Content-Type")
    return Push(Content.of(data, file), _expects(headers.getlist("if-match")), _origin(headers.getlist(ORIGIN)))


def etag(revision: str) -> str:
    return f'"{revision}"'


def _expects(values: list[str]) -> tuple[str, ...]:
    named = [each.strip() for each in ",".join(values).split(",") if each.strip()]
    if values and not named:
        raise _wrong("If-Match", "it is empty")
    if len(named) > _MOST_REVISIONS:
        raise _wrong("If-Match", f"it names more than {_MOST_REVISIONS} revisions")
    found = []
    for each in named:
        match = _REVISION.fullmatch(each)
        if match is None and each != "*":
            raise _wrong(
                "If-Match", f'it takes * or revisions in quotes, such as "{"0123456789abcdef"[:LEAST_DIGITS]}"'
            )
        found.append(each if match is None else match["revision"])
    return tuple(found)


def _origin(values: list[str]) -> Origin | None:
    if not values:
        return None
    match = _ORIGIN.fullmatch(values[0]) if len(values) == 1 else None
    if match is None:
        raise _wrong("Halogen-Origin", "it reads uid=NAME, generation=NUMBER, once")
    return Origin(uid=match["uid"], generation=int(match["generation"]))


def _wrong(header: str, what: str) -> RequestError:
    return RequestError("invalid_value", f"The header `{header}` is not valid: {what}.", param=header)
