"""Renders chat templates, in a process of its own that may be killed at any time.

A template is somebody else's program: it can loop for ever or eat memory, and no sandbox for a
language stops that; a process with limits does. This one reads requests from its standard input and
answers each on its standard output; it holds no state but compiled
templates. Run as `python -m halogend.text.render --parent-pid P`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import json
import resource
import sys
from typing import Any, BinaryIO

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from halogend.text.render_frames import LENGTH, frame, unframe
from halogend.wire.process import die_with_parent

MEMORY_BYTES = 768 << 20  # address space, of which Python and jinja2 take about 100 MiB
MAX_RENDERED_CHARS = 32 << 20  # three times the largest body


class _RejectedError(Exception):
    """The template called raise_exception."""


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks answers for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - the attribute of jinja2's class, read once

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise _RejectedError(message)


def _strftime_now(layout: str) -> str:
    return dt.datetime.now().astimezone().strftime(layout)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: a prompt is no HTML page, so nothing is escaped for one."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # what is rendered is a prompt, not a page
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


@functools.lru_cache(maxsize=4)
def _compiled(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def render(source: str, context: dict[str, Any]) -> dict[str, str]:
    """`{"text": ...}`, or `{"fault": kind, "message": ...}` with a kind of syntax, rejected, failed or
    memory."""
    try:
        pieces, size = [], 0
        for piece in _compiled(source).generate(**context):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RENDERED_CHARS:
                return _fault("memory", f"it wrote more than {MAX_RENDERED_CHARS} characters")
        text = "".join(pieces)
        text.encode()  # a lone surrogate is no text
    except jinja2.TemplateSyntaxError as error:
        return _fault("syntax", f"line {error.lineno}: {error.message}")
    except _RejectedError as error:
        return _fault("rejected", str(error))
    except MemoryError:
        return _fault("memory", "it needed too much memory")
    except Exception as error:  # noqa: BLE001 - a template may raise anything, and must only fail itself
        return _fault("failed", f"{type(error).__name__}: {error}")
    return {"text": text}


def _fault(kind: str, message: str) -> dict[str, str]:
    return {"fault": kind, "message": message[:1000].encode(errors="replace").decode()}


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    return unframe(stream.read(length))


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    while (request := _read(requests)) is not None:
        answers.write(frame(render(request["source"], request["context"])))
        answers.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m halogend.text.render")
    parser.add_argument("--parent-pid", type=int, required=True)
    die_with_parent(parser.parse_args().parent_pid)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
