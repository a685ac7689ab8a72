"""How a field of the schema carries its unit and apply class, and how to walk over all fields.

Knows models only as pydantic classes; the document's own fields are in `schema`.
"""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo


class Apply(enum.StrEnum):
    """What a change of a field means.

    live: in place, under a second, no token lost. generation: a new generation is loaded.
    listener: a socket is bound anew. next-load: recorded and used at the next load. identity: it is
    another thing (one is removed, another created).
    """

    LIVE = "live"
    GENERATION = "generation"
    LISTENER = "listener"
    NEXT_LOAD = "next-load"
    IDENTITY = "identity"


LIVE, GENERATION, LISTENER = Apply.LIVE, Apply.GENERATION, Apply.LISTENER
NEXT_LOAD, IDENTITY = Apply.NEXT_LOAD, Apply.IDENTITY


def setting(  # noqa: PLR0913  # one argument for each thing a field must say about itself
    description: str,
    apply: Apply,
    *,
    default: Any = ...,
    unit: str = "",
    unset: str = "",
    later: tuple[Any, ...] = (),
    path: bool = False,
    section: bool = False,
    word: str = "",
    **limits: Any,
) -> Any:
    """A leaf field. `unset` says what an absent value means; `later` are values of the language that
    this release refuses as not available yet; in a `path` field `${ENV}` is expanded.

    `section`: a section that may be absent, so that it is a field itself beside those inside;
    `word` may stand in its place."""
    extra = {"x-apply": apply.value, "x-unit": unit, "x-unset": unset, "x-later": list(later), "x-path": path}
    extra |= {"x-section": section, "x-word": word}
    return Field(default, description=description, json_schema_extra={k: v for k, v in extra.items() if v}, **limits)


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """One leaf field. `path` has `[]` for a list's entries: `models[].kernels.backend`."""

    path: str
    description: str
    apply: Apply
    unit: str
    unset: str
    later: tuple[Any, ...]
    is_path: bool
    required: bool
    default: Any
    info: FieldInfo


def extra_of(info: FieldInfo) -> dict[str, Any]:
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def key_of(name: str, info: FieldInfo) -> str:
    """The key as a document writes it."""
    return info.alias or name


def nested(info: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """The model class inside a field and whether the field is a list of them; (None, False) for a leaf."""
    extra = extra_of(info)
    if "x-apply" in extra and "x-section" not in extra:
        return None, False
    annotation = info.annotation
    is_list = typing.get_origin(annotation) is tuple
    inner = typing.get_args(annotation)[0] if is_list or "x-section" in extra else annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return inner, is_list
    return None, False


def leaf_fields(model: type[BaseModel], prefix: str = "") -> Iterator[FieldDoc]:
    """Every leaf below `model`, in the schema's order."""
    for name, info in model.model_fields.items():
        path = f"{prefix}.{key_of(name, info)}" if prefix else key_of(name, info)
        inner, is_list = nested(info)
        extra = extra_of(info)
        if inner is None or "x-section" in extra:
            yield _field_doc(path, info, extra)
        if inner is not None:
            yield from leaf_fields(inner, f"{path}[]" if is_list else path)


def _field_doc(path: str, info: FieldInfo, extra: dict[str, Any]) -> FieldDoc:
    return FieldDoc(
        path=path,
        description=info.description or "",
        apply=Apply(extra["x-apply"]),
        unit=extra.get("x-unit", ""),
        unset=extra.get("x-unset", ""),
        later=tuple(extra.get("x-later", ())),
        is_path=extra.get("x-path", False),
        required=info.is_required(),
        default=None if info.is_required() else info.get_default(call_default_factory=True),
        info=info,
    )


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One leaf that differs between two values of the same model class."""

    path: str
    old: Any
    new: Any
    apply: Apply


def changed_fields(old: BaseModel, new: BaseModel, prefix: str = "") -> tuple[FieldChange, ...]:
    """Leaves that differ, in the schema's order, lists of models not entered (compare their entries by
    identity first). A section that only one of the two has differs as a whole. `path` is relative:
    `kernels.backend`."""
    return tuple(_changes(old, new, prefix))


def _changes(old: BaseModel, new: BaseModel, prefix: str) -> Iterator[FieldChange]:
    for name, info in type(old).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        if before is after or before == after:
            continue
        path = f"{prefix}.{key_of(name, info)}" if prefix else key_of(name, info)
        inner, is_list = nested(info)
        if is_list and inner is not None:
            continue
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _changes(before, after, path)
        else:
            apply = Apply(extra_of(info)["x-apply"])
            yield FieldChange(path, _stated(before, info), _stated(after, info), apply)


def _stated(value: Any, info: FieldInfo) -> Any:
    """A section that is there where nothing is said, and is not, was switched off by a word."""
    return extra_of(info).get("x-word") if value is None and info.default is not None else value


def unindexed(path: str) -> str:
    """`models[3].device` -> `models[].device`."""
    return re.sub(r"\[\d+\]", "[]", path)
