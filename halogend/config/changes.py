"""What differs between two entries of one model, each with its class: a pure function of old and new.

The class stands in the schema; the one that also depends on the values is `device`'s.
"""

from __future__ import annotations

from dataclasses import replace

from halogend.config.fields import Apply, FieldChange, changed_fields
from halogend.config.schema import ModelConfig


def model_changes(old: ModelConfig, new: ModelConfig) -> tuple[FieldChange, ...]:
    """In the schema's order. Replicas of a data-parallel model come and go live, as long as one of them stays;
    so does a change of their weights."""
    changes = changed_fields(old, new)
    is_live = _is_live(old, new)
    return tuple(replace(each, apply=Apply.LIVE) if each.path == "device" and is_live else each for each in changes)


def _is_live(old: ModelConfig, new: ModelConfig) -> bool:
    were, are = {each.id for each in old.device}, {each.id for each in new.device}
    replicated = old.exec_mode == new.exec_mode == "data_parallel"
    return were == are or (replicated and bool(were & are))
