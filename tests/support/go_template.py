"""Go's templates, as far as the chart uses them: a subset of Helm that refuses everything else.

Actions: `.path`, `$`, `$.path`, texts, whole numbers; pipelines of `default`, `indent`, `nindent`, `quote`, `toYaml`;
`if`, `else`, `with`, `range` (of a list), `end`, comments; dashes trim white space. A name that is not there, or a
function that is not one of these, is an error here where Helm may be more lenient or able: what passes here, Helm
renders alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-)?(.*?)(-)?\}\}", re.DOTALL)
_TERM = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s|]+|\|')


class TemplateError(Exception):
    """The template says what this subset does not know."""


@dataclass
class _Block:
    """`kind` is if, with or range, the root's is empty; `parts` are texts, pipelines (lists of terms) and blocks."""

    kind: str = ""
    terms: list[str] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    otherwise: list[Any] | None = None

    @property
    def here(self) -> list[Any]:
        return self.parts if self.otherwise is None else self.otherwise


def render(template: str, root: Mapping[str, Any]) -> str:
    """`root` has `Values`, `Release` and `Chart`."""
    return "".join(_rendered(_parse(template).parts, root, root))


def _parse(template: str) -> _Block:
    open_blocks = [_Block()]
    for piece in _pieces(template):
        block = open_blocks[-1]
        if isinstance(piece, str):
            block.here.append(piece)
            continue
        word = piece[0]
        if word in ("if", "with", "range"):
            inner = _Block(word, piece[1:])
            block.here.append(inner)
            open_blocks.append(inner)
        elif word == "else":
            if len(piece) > 1 or block.otherwise is not None or not block.kind:
                raise TemplateError(f"{' '.join(piece)} is not known here")
            block.otherwise = []
        elif word == "end":
            open_blocks.pop()
        else:
            block.here.append(piece)
    if len(open_blocks) != 1:
        raise TemplateError(f"{open_blocks[-1].kind} has no end")
    return open_blocks[0]


def _pieces(template: str) -> Iterator[str | list[str]]:
    """Texts and the terms of actions, white space trimmed where a dash says so."""
    at, trims = 0, False
    for found in _ACTION.finditer(template):
        text = template[at : found.start()]
        text = text.lstrip() if trims else text
        yield text.rstrip() if found[1] else text
        inner = found[2].strip()
        if not inner.startswith("/*"):
            yield _TERM.findall(inner)
        at, trims = found.end(), bool(found[3])
    yield template[at:].lstrip() if trims else template[at:]


def _rendered(parts: Sequence[Any], dot: Any, root: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            yield _printed(_value(part, dot, root))
        else:
            yield from _block(part, dot, root)


def _block(block: _Block, dot: Any, root: Any) -> Iterator[str]:
    value = _value(block.terms, dot, root)
    if not value:
        yield from _rendered(block.otherwise or [], dot, root)
    elif block.kind == "range":
        for each in value:
            yield from _rendered(block.parts, each, root)
    else:
        yield from _rendered(block.parts, value if block.kind == "with" else dot, root)


def _value(terms: Sequence[str], dot: Any, root: Any) -> Any:
    """Of a pipeline: each command's result is the last argument of the next."""
    commands: list[list[str]] = [[]]
    for term in terms:
        if term == "|":
            commands.append([])
        else:
            commands[-1].append(term)
    given: list[Any] = []
    for name, *arguments in commands:
        if name in _FUNCTIONS:
            given = [_FUNCTIONS[name](*(_term(each, dot, root) for each in arguments), *given)]
        elif arguments or given:
            raise TemplateError(f"the function {name} is not known here")
        else:
            given = [_term(name, dot, root)]
    return given[0]


def _term(term: str, dot: Any, root: Any) -> Any:
    if term.startswith('"'):
        return json.loads(term)
    if term.isdecimal():
        return int(term)
    start, rest = (root, term[1:]) if term.startswith("$") else (dot, term)
    if rest not in ("", ".") and not rest.startswith("."):
        raise TemplateError(f"{term} is not known here")
    for step in filter(None, rest.split(".")):
        if step not in start:
            raise TemplateError(f"there is no {term}")
        start = start[step]
    return start


def _printed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    raise TemplateError(f"{value!r} is no text")


def _indented(width: int, text: str) -> str:
    return "\n".join(f"{' ' * width}{line}" for line in text.split("\n"))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "default": lambda otherwise, value: value or otherwise,
    "indent": _indented,
    "nindent": lambda width, text: f"\n{_indented(width, text)}",
    "quote": lambda value: json.dumps(_printed(value)),
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
}
