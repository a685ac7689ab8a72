"""Block sizes, numbers of warps and of pipeline stages: by operator, target and shape class, from tables.

`tuning/OP.json` holds the rules of one operator for each target; the first whose conditions hold counts:

    {"sm_90": [{"when": {"head_dim": [64, 80], "rows": {"max": 16}}, "blocks": {"BLOCK": 64, "num_warps": 4}},
               {"blocks": {"BLOCK": 128, "num_warps": 8, "num_stages": 3}}],
     "interpreter": [{"blocks": {"BLOCK": 256}}],
     "default": [...]}

A condition is a value, a list of them, or bounds (min, max, both included). A target that is not named has the rules
of "default". Nothing is measured here: `kernels/bench/retune.py` does that, and writes a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from halogen_kernels.triton import targets

TABLES = Path(__file__).parent / "tuning"
DEFAULT = "default"

Blocks = Mapping[str, int]
Rule = Mapping[str, Any]

_NOTHING: Mapping[tuple[str, int], Blocks] = MappingProxyType({})
_tried: ContextVar[Mapping[tuple[str, int], Blocks]] = ContextVar("tried", default=_NOTHING)
_noted: ContextVar[set[tuple[str, int]] | None] = ContextVar("noted", default=None)


def pick(op: str, **shape: Any) -> Blocks:
    """The block sizes of `op` for a shape on the current target, to be given to `launch` as keyword arguments.
    `shape` has what the conditions of its table ask for: numbers, strings, booleans. Raises LookupError where no
    rule holds, and for an operator without a table."""
    number, blocks = picked(op, targets.current().name, tuple(sorted(shape.items())))
    noted_rules = _noted.get()
    if noted_rules is not None:
        noted_rules.add((op, number))
    return _tried.get().get((op, number), blocks)


@contextmanager
def trying(op: str, number: int, blocks: Blocks) -> Iterator[None]:
    """Within, this thread picks `blocks` where the rule of that number holds."""
    token = _tried.set({**_tried.get(), (op, number): blocks})
    try:
        yield
    finally:
        _tried.reset(token)


@contextmanager
def noted() -> Iterator[set[tuple[str, int]]]:
    """Yields a set to which each rule that this thread picks within is added: its operator and its number."""
    found: set[tuple[str, int]] = set()
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def representatives(op: str, key: str) -> tuple[int, ...]:
    """One number of each class that the rules of `op` for the current target make by bounds of `key`, ascending:
    who asks `pick` with each of them gets all that any number gets, other things being equal."""
    edges = {1}
    for rule in rules(op, targets.current().name):
        condition = rule.get("when", {}).get(key)
        edges.update(_edges(condition))
    return tuple(sorted(edges))


@lru_cache(maxsize=256)
def rules(op: str, target: str) -> tuple[Rule, ...]:
    """In the order they are tried in. Raises LookupError for an operator without a table."""
    try:
        table = json.loads(table_path(op).read_text())
    except FileNotFoundError as error:
        raise LookupError(f"no table of block sizes for {op!r}; there are {', '.join(operators())}") from error
    return tuple(table.get(target) or table.get(DEFAULT) or ())


def table_path(op: str) -> Path:
    return TABLES / f"{op}.json"


def operators() -> tuple[str, ...]:
    """Those that have a table."""
    return tuple(sorted(path.stem for path in TABLES.glob("*.json")))


@lru_cache(maxsize=4096)
def picked(op: str, target: str, shape: tuple[tuple[str, Any], ...]) -> tuple[int, Blocks]:
    """The number of the first rule that holds, and its sizes."""
    values = dict(shape)
    for number, rule in enumerate(rules(op, target)):
        if all(_holds(condition, values.get(key)) for key, condition in rule.get("when", {}).items()):
            return number, MappingProxyType(dict(rule["blocks"]))
    raise LookupError(f"no block sizes for {op!r} on {target} with {values}")


def _holds(condition: Any, value: Any) -> bool:
    if isinstance(condition, list):
        return value in condition
    if isinstance(condition, dict):
        return bool(condition.get("min", value) <= value <= condition.get("max", value))
    return bool(value == condition)


def _edges(condition: Any) -> Iterator[int]:
    """Numbers next to the bounds, on both sides."""
    if isinstance(condition, dict):
        if "max" in condition:
            yield from (condition["max"], condition["max"] + 1)
        if "min" in condition:
            yield from (max(condition["min"] - 1, 1), condition["min"])
    elif isinstance(condition, list):
        yield from condition
    elif condition is not None:
        yield from (condition, condition + 1)
