"""What differs between two entries of one model, each with its class: a pure function of old and new.

The class stands in the schema; the one that also depends on the values is `device`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from halogend.config.fields import Apply, FieldChange, changed_fields
from halogend.config.schema import ModelConfig, SessionClassConfig


def model_changes(old: ModelConfig, new: ModelConfig) -> tuple[FieldChange, ...]:
    """In the schema's order, then classes of `eviction.sessions` by their names. Replicas of a data-parallel model
    come and go live, as long as one of them stays; so does a change of their weights."""
    changes = changed_fields(old, new)
    is_live = _is_live(old, new)
    fields = (replace(each, apply=Apply.LIVE) if each.path == "device" and is_live else each for each in changes)
    return (*fields, *_class_changes(old, new))


def _class_changes(old: ModelConfig, new: ModelConfig) -> Iterator[FieldChange]:
    """A class is its name; one that comes or goes is told as a whole."""
    before, after = ({each.klass: each for each in model.eviction.sessions} for model in (old, new))
    for name in dict.fromkeys([*before, *after]):
        was, is_, path = before.get(name), after.get(name), f"eviction.sessions[{name}]"
        if was is not None and is_ is not None:
            yield from changed_fields(was, is_, path)
        else:
            yield FieldChange(path, _told(was), _told(is_), Apply.LIVE)


def _told(each: SessionClassConfig | None) -> dict[str, Any] | None:
    return None if each is None else each.model_dump(by_alias=True, exclude_defaults=True)


def _is_live(old: ModelConfig, new: ModelConfig) -> bool:
    were, are = {each.id for each in old.device}, {each.id for each in new.device}
    replicated = old.exec_mode == new.exec_mode == "data_parallel"
    return were == are or (replicated and bool(were & are))
