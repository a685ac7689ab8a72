"""Bytes of a request's body to a JSON object, with every bound that bytes from outside need."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message

from halogend.control.requests import RequestError

MAX_BODY_BYTES = 10 << 20
_BROWSERS_SAY = ("origin", "sec-fetch-site")
_LARGE_BYTES = 256 << 10
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody to answer."""


async def read_object(request: Request, *, patience_s: float, max_bytes: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The body as a JSON object. Of programs the content type is not looked at: `curl -d` sends a form's.

    `patience_s` bounds the wait for each further piece. Raises RequestError (bad_content_type, body_too_large,
    body_timeout, bad_encoding, bad_json) and ClientGoneError.
    """
    _refuse_pages(request.headers)
    body = await read_bytes(request, patience_s=patience_s, max_bytes=max_bytes)
    if len(body) > _LARGE_BYTES:  # up to half a second for a hostile one; in a thread the loop goes on
        return await asyncio.to_thread(parse_object, body)
    return parse_object(body)


def _refuse_pages(headers: Headers) -> None:
    """A browser lets any page send text or a form anywhere, also to this machine's loopback, and asks nobody; for JSON
    it asks first, and is not allowed. It always says that it is one."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and any(name in headers for name in _BROWSERS_SAY):
        raise RequestError("bad_content_type", "A page in a browser must send application/json.", param="Content-Type")


async def read_bytes(request: Request, *, patience_s: float, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The body as it came. Raises RequestError (body_too_large, body_timeout, bad_encoding) and
    ClientGoneError."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise RequestError("bad_encoding", f"A body in content-encoding `{encoding}` is not accepted; send it plain.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        _refuse_size(max_bytes)
    return await _read(request.receive, patience_s, max_bytes)


async def _read(receive: Callable[[], Awaitable[Message]], patience_s: float, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while True:
        try:
            async with asyncio.timeout(patience_s):
                message = await receive()
        except TimeoutError as error:
            raise RequestError("body_timeout", f"No more of the body came within {patience_s:g} s.") from error
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        pieces.append(message.get("body", b""))
        total += len(pieces[-1])
        if total > max_bytes:
            _refuse_size(max_bytes)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _refuse_size(max_bytes: int) -> NoReturn:
    raise RequestError("body_too_large", f"The body is over the limit of {max_bytes} bytes ({max_bytes >> 20} MiB).")


def parse_object(body: bytes) -> dict[str, Any]:
    """Strict JSON: UTF-8, no duplicate key, no NaN, no half of a surrogate pair, an object on top.

    Raises RequestError bad_json with the place.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad_json(f"not UTF-8 at byte {error.start}") from error
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _bad_json(f"{error.msg} at line {error.lineno}, column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise _bad_json("a string holds half of a surrogate pair, which is no text") from error
    except RecursionError as error:
        raise _bad_json("it is nested too deeply") from error
    except ValueError as error:  # from the hooks, or a number of more digits than Python converts
        raise _bad_json(str(error).partition(";")[0]) from error
    if not isinstance(value, dict):
        raise _bad_json("the body must be an object")
    return value


def _bad_json(what: str) -> RequestError:
    return RequestError("bad_json", f"The body is not valid JSON: {what}.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {json.dumps(key)} is given twice in one object")
            seen.add(key)
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
