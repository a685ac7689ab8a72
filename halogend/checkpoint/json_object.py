"""JSON files that hold an object, read strictly: what two readers could understand in two ways is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from halogend.checkpoint.errors import KEY_INVALID, CheckpointError, shown

MAX_SETTINGS_BYTES = 4 << 20  # three times those of a tokenizer with 6,000 added tokens
MAX_VOCABULARY_BYTES = 64 << 20
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
    """The texts of a document, names of keys too, each with the place where it stands."""
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        place, part = left.pop()
        if isinstance(part, dict):
            inner = [(f"{place}.{key}" if place else key, each) for key, each in part.items()]
            yield from ((name, name) for name, _ in inner)
        else:
            inner = [(f"{place}[{index}]", each) for index, each in enumerate(part)]
        yield from ((name, each) for name, each in inner if isinstance(each, str))
        left += [(name, each) for name, each in inner if isinstance(each, dict | list)]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
