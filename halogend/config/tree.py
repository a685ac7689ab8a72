"""YAML text -> a tree of nodes with places, bounded in size and depth, without YAML 1.1's surprises.

Works on the event stream, so nesting costs no recursion. Nodes may be shared through aliases; their
size and depth count what they expand to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from halogend.config.codes import Code
from halogend.config.nodes import Entry, Mapping, Node, Scalar, Sequence, resolve, unprintable
from halogend.config.places import Mark
from halogend.config.problems import Problem
from halogend.config.values import LONGEST_SHOWN, shown

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 50_000

_FOREIGN_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class Refused(Exception):  # noqa: N818  # control flow of this module: carries the problem that ended the reading
    def __init__(self, code: Code, message: str, hint: str = "", mark: Mark | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.mark = mark


def read(data: bytes, file: str, *, is_part: bool = False) -> tuple[Node | None, tuple[Problem, ...]]:
    """The root node (None if there is none to speak of) and what is wrong with the text. The marks of a
    part, one file of several, name it; a part may hold comments alone."""
    builder = _Builder(file, file if is_part else "")
    try:
        text = _decode(data)
        for event in _events(text):
            builder.take(event)
    except Refused as refused:
        builder.report(refused.code, str(refused), refused.hint, refused.mark)
        return None, tuple(builder.problems)
    except (ValueError, OverflowError):  # the scanner's own, for which it has no error with a place
        message, hint = "an escape or a version number is out of range", "look behind this place for \\U or %YAML"
        builder.report(Code.SYNTAX, message, hint, builder.last)
        return None, tuple(builder.problems)
    if builder.root is None and not (is_part and data.strip()):
        builder.report(Code.EMPTY_DOCUMENT, "the document is empty", "write a document, or restore the file")
    return builder.root, tuple(builder.problems)


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise Refused(Code.TOO_LARGE, f"the document has {len(data)} bytes, over the limit of {MAX_BYTES}")
    for mark, name in _FOREIGN_MARKS.items():
        if data.startswith(mark):
            raise Refused(Code.NOT_UTF8, f"the document is {name}, not UTF-8", "save it as UTF-8", Mark(1, 1))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        raise Refused(
            Code.NOT_UTF8, f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8", _end_of(before)
        ) from error
    if found := unprintable(text):
        raise Refused(
            Code.CONTROL_CHARACTER,
            f"the document holds the character U+{ord(found[0]):04X}",
            "remove it; a half-written or binary file looks like this",
            _end_of(text[: found.start()]),
        )
    return _json_tabs_as_spaces(text)


def _end_of(text: str) -> Mark:
    return Mark(text.count("\n") + 1, len(text) - text.rfind("\n"))


def _json_tabs_as_spaces(text: str) -> str:
    """JSON allows tabs between its tokens, YAML does not; inside JSON's strings no raw tab can be."""
    if "\t" in text and text.lstrip().startswith("{"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return text
        return text.replace("\t", " ")
    return text


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error) from error
    except yaml.YAMLError as error:
        raise Refused(Code.SYNTAX, f"the text is not YAML: {error}") from error


def _syntax(error: yaml.MarkedYAMLError) -> Refused:
    where = error.problem_mark or error.context_mark
    what = error.problem or "unexpected text"
    context = f" ({error.context})" if error.context else ""
    hints = {
        "'\\t'": "indent with spaces, not tabs",
        "mapping values are not allowed": "quote text that holds a colon, or mend the indentation",
        "could not find expected ':'": "a key needs a colon and a space behind it",
        "expected <block end>": "check the indentation of this line and the one before",
        "cannot start any token": "quote the text",
        "undefined alias": "an alias needs its anchor before it",
    }
    hint = next((text for part, text in hints.items() if part in what), "mend this line or the one before it")
    message = " ".join(f"not valid YAML: {what}{context}".split())
    return Refused(Code.SYNTAX, message, hint, Mark(where.line + 1, where.column + 1) if where else None)


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet. `key` is the mapping's key that waits for its value."""

    mark: Mark
    anchor: str | None
    block: bool
    is_mapping: bool
    entries: dict[str, Entry] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    key: tuple[str, Mark] | None = None
    size: int = 1
    depth: int = 1


class _Builder:
    """Events in, a tree out. Faults that allow reading on are gathered in `problems`."""

    def __init__(self, file: str, part: str) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self.last: Mark | None = None
        self._file = file
        self._part = part
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0

    def report(self, code: Code, message: str, hint: str = "", mark: Mark | None = None) -> None:
        line, column = (mark.line, mark.column) if mark else (None, None)
        self.problems.append(Problem(code, message, hint, self._file, line, column))

    def take(self, event: yaml.Event) -> None:
        start = event.start_mark
        line, column = (start.line + 1, start.column + 1) if start else (1, 1)
        mark = self.last = Mark(line, column, self._part)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise Refused(Code.YAML_FEATURE, "the file holds a second document", "one file is one document", mark)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, mark)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                name = str(event.anchor)[:LONGEST_SHOWN]
                raise Refused(Code.SYNTAX, f"*{name} names no finished anchor", "define it before its use", mark)
            self._put(self._anchors[event.anchor], mark)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event, mark)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark) -> None:
        self._no_tag(event.tag, mark)
        plain = event.style is None
        text = _joined_surrogates(event.value)
        if found := unprintable(text):
            raise Refused(
                Code.CONTROL_CHARACTER, f"the text holds the character U+{ord(found[0]):04X}", "remove it", mark
            )
        node = Scalar(resolve(text) if plain else text, mark, plain)
        waiting = self._stack[-1] if self._stack else None
        if waiting and waiting.is_mapping and waiting.key is None:
            if plain and text == "<<":
                raise Refused(Code.YAML_FEATURE, "merge keys (<<) are not accepted", "write the values out", mark)
            waiting.key = (text, mark)
        else:
            self._remember(event.anchor, node)
            self._put(node, mark)

    def _open(self, event: yaml.CollectionStartEvent, mark: Mark) -> None:
        self._no_tag(event.tag, mark)
        if self._stack and self._stack[-1].is_mapping and self._stack[-1].key is None:
            raise Refused(Code.YAML_FEATURE, "a key must be plain text", "check the brackets and braces", mark)
        if len(self._stack) >= MAX_DEPTH:
            raise Refused(Code.TOO_DEEP, f"nested more than {MAX_DEPTH} levels deep", "check the brackets", mark)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self._stack.append(_Open(mark, event.anchor, not event.flow_style, is_mapping))

    def _close(self) -> None:
        done = self._stack.pop()
        node: Node
        if done.is_mapping:
            node = Mapping(tuple(done.entries.values()), done.mark, done.block, done.size, done.depth)
        else:
            node = Sequence(tuple(done.items), done.mark, done.block, done.size, done.depth)
        self._remember(done.anchor, node)
        self._put(node, done.mark)

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _put(self, node: Node, mark: Mark) -> None:
        if not self._stack:
            self.root = None if isinstance(node, Scalar) and node.value is None else node
            return
        parent = self._stack[-1]
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if parent.size > MAX_VALUES:
            raise Refused(Code.TOO_LARGE, f"aliases expand to more than {MAX_VALUES} values", "write them out", mark)
        if len(self._stack) + node.depth > MAX_DEPTH:
            raise Refused(Code.TOO_DEEP, f"nested more than {MAX_DEPTH} levels deep", "check the aliases", mark)
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.key is None:  # an alias where a key belongs
            raise Refused(Code.YAML_FEATURE, "a key must be plain text, not an alias", "write it out", mark)
        else:
            self._add(parent, *parent.key, node)
            parent.key = None

    def _add(self, parent: _Open, key: str, mark: Mark, node: Node) -> None:
        first = parent.entries.setdefault(key, Entry(key, mark, node))
        if first.mark != mark:
            self.report(
                Code.DUPLICATE_KEY,
                f"the key {shown(key)} stands twice; first at line {first.mark.line}, column {first.mark.column}",
                "keep one of them",
                mark,
            )

    @staticmethod
    def _no_tag(tag: str | None, mark: Mark) -> None:
        if tag is not None:
            short = tag.replace("tag:yaml.org,2002:", "!!")[:LONGEST_SHOWN]
            raise Refused(Code.YAML_FEATURE, f"the tag {short} is not accepted", "write the value without it", mark)


def _joined_surrogates(text: str) -> str:
    """JSON writes characters beyond the BMP as two escapes; YAML leaves the halves apart."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:  # a half without its other half: refused as unprintable
        return text
