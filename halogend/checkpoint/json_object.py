"""JSON files that hold an object, read strictly: what two readers could understand in two ways is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from halogend.checkpoint.errors import KEY_INVALID, CheckpointError, shown

MAX_SETTINGS_BYTES = 4 << 20  # three times those of a tokenizer with 6,000 added tokens
MAX_VOCABULARY_BYTES = 64 << 20
_MOST_PLACE = 1000  # characters of a place to which the next key is added still
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # one alone or half of a pair; only an escape can write it


class _TwiceError(ValueError):
    """An object holds a key twice."""


def parse_json_object(data: bytes, what: str, code: str = KEY_INVALID) -> dict[str, Any]:
    """The object in `data`. Raises CheckpointError of `code`, beginning with `what`, for what is no
    JSON in UTF-8, for anything but an object, for a key that an object holds twice, and for a text that
    is no valid Unicode."""
    if not data.strip():
        raise CheckpointError(code, f"{what} is empty")
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except _TwiceError as error:
        raise CheckpointError(code, f"{what} holds the key {error} twice") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(code, f"{what} is not UTF-8 (at byte {error.start})") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CheckpointError(code, f"{what} is no valid JSON: {error.msg} ({where})") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(code, f"{what} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(code, f"{what} holds no JSON object")
    if _SURROGATE.search(data) is not None:
        _check_texts(value, what, code)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(shown(key))
            seen.add(key)
    return found


def _check_texts(value: dict[str, Any], what: str, code: str) -> None:
    for key, text in _texts(value):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"{what} key {shown(key)} is no valid Unicode: it holds half of a surrogate pair"
            raise CheckpointError(code, message) from error


def _texts(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a document, names of keys too, each with the place where it stands. Holds no more at once
    than the document is deep: it may be of millions of small parts."""
    open_parts = [_inner("", value)]
    while open_parts:
        if (found := next(open_parts[-1], None)) is None:
            open_parts.pop()
            continue
        name, part = found
        if isinstance(part, str):
            yield name, part
        elif isinstance(part, dict | list) and part:
            open_parts.append(_inner(name, part))


def _inner(place: str, part: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    """What an object or a list holds, and an object's keys, each with its place, as far as a message tells it."""
    if isinstance(part, list):
        yield from ((f"{place}[{index}]", each) for index, each in enumerate(part))
        return
    for key, each in part.items():
        name = place if len(place) > _MOST_PLACE else f"{place}.{key}" if place else key
        yield name, key
        yield name, each


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
