"""One written value: refused where this release cannot honour it, expanded where it is a path.

What a value must look like is the schema's business; this is about what it asks for.
"""

from __future__ import annotations

import re
from typing import Any

from halogend.config import accepts, nodes
from halogend.config.codes import Code
from halogend.config.fields import extra_of
from halogend.config.findings import Findings, Slot
from halogend.config.values import shown

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*")
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+")
_CHECKPOINT_SUFFIXES = (".gguf", ".hgn2", ".safetensors")


def leaf(entry: nodes.Entry, slot: Slot, into: Findings) -> tuple[Any, ...]:
    """The value in a tuple of one, or an empty tuple when it was refused and reported."""
    value = nodes.plain_value(entry.node)
    into.saw_inside(entry.node, slot.path)
    extra = extra_of(slot.info)
    if any(type(value) is type(later) and value == later for later in extra.get("x-later", ())):
        _later(slot, shown(value), f"this release takes {accepts.words(accepts.schema_of(slot.owner, slot.key))}", into)
        return ()
    if extra.get("x-path") and isinstance(value, str):
        expanded = _expanded(slot, value, into)
        if expanded is None:
            return ()
        if slot.key == "model" and _looks_remote(slot, expanded, into):
            return ()
        value = expanded
    return (value,)


def _later(slot: Slot, what: str, hint: str, into: Findings) -> None:
    message = f"`{slot.name}` {what} is not available yet"
    into.report(Code.NOT_AVAILABLE_YET, into.marks[slot.path], slot.path, message, hint)


def _expanded(slot: Slot, text: str, into: Findings) -> str | None:
    """`${NAME}` replaced by the environment's value, `$${` by `${`; None when a variable is at fault."""
    faults: list[str] = []

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "${"
        value = into.env.get(name, "")
        if not _VARIABLE_NAME.fullmatch(name):
            faults.append(f"{shown(name)} is no name of an environment variable")
        elif not value:
            faults.append(f"the environment variable {name} is {'empty' if name in into.env else 'not set'}")
        elif nodes.unprintable(value):
            faults.append(f"the environment variable {name} holds a character no path may have")
        return value

    whole = _VARIABLE.sub(value_of, text)
    for fault in dict.fromkeys(faults):
        hint = "set it where the daemon starts, or write the path out; $${ stands for a plain ${"
        into.report(Code.UNSET_VARIABLE, into.marks[slot.path], slot.path, f"`{slot.name}`: {fault}", hint)
    return None if faults else whole


def _looks_remote(slot: Slot, path: str, into: Findings) -> bool:
    remote = _REMOTE.fullmatch(path)
    if remote is None and (not _HUB_NAME.fullmatch(path) or path.endswith(_CHECKPOINT_SUFFIXES)):
        return False
    what = "an address on the network" if remote else "a name on a model hub"
    advice = "" if remote else f"; write ./{path} if a folder of that name is meant"
    into.report(
        Code.OUT_OF_SCOPE,
        into.marks[slot.path],
        slot.path,
        f"`model` {shown(path)} looks like {what}; halogend downloads nothing",
        f"download the file yourself and give its path{advice}",
    )
    return True
