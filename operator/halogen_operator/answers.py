"""The parts of a daemon's answers that the operator relies on, with their types and bounds.

A pod runs what an image holds, of this release or another: what is not here is passed over, what is here and is
something else makes the whole answer none. Owns shapes alone; what they mean is `engine_view`'s and `plan_only`'s.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

Word = Annotated[str, msgspec.Meta(max_length=128)]
Revision = Annotated[str, msgspec.Meta(max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
T = TypeVar("T")


def decoded(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError for anything else: numbers that are none, halves of characters and nesting
    without an end among it, which others could not read if they stood in a status."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004  one error for all that an answer may not be
    return value


def read(value: Any, shape: type[T]) -> T:
    """Raises ValueError, with the place that is something else."""
    return msgspec.convert(value, shape)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: Word
    message: str
    hint: str = ""
    path: str = ""


# --- /receipts ----------------------------------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    generation: Count


class End(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    error: str | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    id: Word
    outcome: Word | None
    revision: Revision | None = None
    origin: Origin | None = None
    problems: tuple[Problem, ...] = ()
    models: tuple[End, ...] = ()


class Receipts(msgspec.Struct, frozen=True, kw_only=True):
    receipts: tuple[Receipt, ...]


# --- /status ------------------------------------------------------------------------------------------


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    stage: Word | None = None
    loaded_bytes: Count | None = None
    total_bytes: Count | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    state: Word
    trouble: str | None = None
    degraded: str | None = None
    loading: Loading | None = None
    probation: dict[str, Any] | None = None


class Revisions(msgspec.Struct, frozen=True, kw_only=True):
    desired: Revision | None
    active: Revision | None


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    since: Moment
    by: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    revision: Revisions
    models: dict[str, Model]
    hold: Hold | None = None


# --- a plan -------------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    field: str
    old: Any = None
    new: Any = None
    kind: Word | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    expected_s: Seconds


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    limit_s: Seconds
    may_outlive: Count = 0


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True):
    action: Word
    strategy: Word | None = None
    steps: tuple[Word, ...] = ()
    changes: tuple[Change, ...] = ()
    load: Load | None = None
    drain: Drain | None = None


class PlannedRevisions(msgspec.Struct, frozen=True, kw_only=True):
    current: Revision | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Word
    revision: PlannedRevisions = PlannedRevisions()
    problems: tuple[Problem, ...] = ()
    models: tuple[ModelPlan, ...] = ()
    server_changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
