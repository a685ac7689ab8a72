"""What a pod's daemon tells of itself, read from the answers of its admin API.

Pure. Owns what those answers mean; their shapes are `answers`. Must never know pods.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass

from halogen_operator import answers

SHOWN_DIGITS = 12
INTERRUPTED = "HRT-1019"
"""The code of a change whose daemon ended before it did."""

UNANSWERED = frozenset({None, "superseded"})
GOOD = frozenset({"applied", "unchanged"})
_MOST_PROBLEMS = 16
_PROBLEM_CHARACTERS = 1024
_MODEL = re.compile(r"models\[0\]\.?")


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """The record of a push of ours. `revision` has 12 digits, or is None where the document could not be read;
    `outcome` is None while it is under way. `problems` say what was refused, each
    beginning with its place in the spec, `errors` what failed; `is_interrupted`: the daemon's end was its end."""

    id: str
    generation: int | None
    revision: str | None
    outcome: str | None
    problems: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    is_interrupted: bool = False

    @property
    def is_open(self) -> bool:
        return self.outcome is None

    @property
    def is_refused(self) -> bool:
        """It ended otherwise than was asked, by what it holds or by what became of it."""
        return self.outcome not in UNANSWERED and self.outcome not in GOOD

    @property
    def why(self) -> str:
        """What was wrong, in one line."""
        return "; ".join((*self.problems, *self.errors)) or str(self.outcome)

    @classmethod
    def of(cls, told: answers.Receipt) -> ReceiptView:
        return cls(
            id=told.id,
            generation=None if told.origin is None else told.origin.generation,
            revision=short(told.revision),
            outcome=told.outcome,
            problems=tuple(problem_text(each) for each in told.problems[:_MOST_PROBLEMS]),
            errors=tuple(_cut(f"{each.model}: {each.error}") for each in told.models[:_MOST_PROBLEMS] if each.error),
            is_interrupted=any(each.code == INTERRUPTED for each in told.problems),
        )


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model of the daemon. `state` is serving, loading, restarting, failed, starting or removed; `trouble` is why
    it does not serve, `degraded` what is wrong although it does. `loaded` is the share of a load's bytes that is
    done, None where nothing loads. `is_on_probation`: the generation before stands by still."""

    name: str
    state: str
    trouble: str | None = None
    degraded: str | None = None
    loaded: float | None = None
    stage: str | None = None
    is_on_probation: bool = False

    @property
    def percent(self) -> int:
        """Of a load that is done, in steps of 5: a status is written when it changes."""
        return int(100 * (self.loaded or 0)) // 5 * 5

    @property
    def is_loading(self) -> bool:
        return self.loaded is not None

    @classmethod
    def of(cls, name: str, told: answers.Model) -> ModelView:
        return cls(
            name=name,
            state=told.state,
            trouble=told.trouble,
            degraded=told.degraded,
            loaded=None if told.loading is None else _share(told.loading),
            stage=None if told.loading is None else told.loading.stage,
            is_on_probation=told.probation is not None,
        )


@dataclass(frozen=True, slots=True)
class EngineView:
    """`desired` is the revision (12 digits) whose targets are set and `document` its canonical text, `active` the one
    all of which served last. `receipts` are the records of our own pushes, newest first. `hold`: since when and by
    whom changes are held, in words."""

    desired: str | None
    active: str | None
    document: str | None
    models: tuple[ModelView, ...] = ()
    receipts: tuple[ReceiptView, ...] = ()
    hold: str | None = None

    @property
    def receipt(self) -> ReceiptView | None:
        """Of our newest push."""
        return self.receipts[0] if self.receipts else None

    @property
    def is_serving(self) -> bool:
        """Does all that is asked of it serve, and is that a model at all? One that was removed may drain for long."""
        asked = [each for each in self.models if each.state != "removed"]
        all_serve = all(each.state == "serving" and not each.is_loading for each in asked)
        return bool(asked) and all_serve and self.active == self.desired

    @property
    def is_changing(self) -> bool:
        """Is a change under way, of whatever document?"""
        return any(each.is_open for each in self.receipts) or any(each.is_loading for each in self.models)

    @property
    def is_on_probation(self) -> bool:
        """May what it serves still be taken back?"""
        return any(each.is_on_probation for each in self.models)

    @property
    def served(self) -> str | None:
        """The revision that answers requests; None where none does. A document without a model answers none."""
        return self.active if any(each.state == "serving" for each in self.models) else None

    @property
    def has_served(self) -> bool:
        """Has it answered requests before, as far as it can tell?"""
        return any(each.state in ("serving", "restarting") for each in self.models)

    @classmethod
    def of(
        cls, told: answers.Status, document: str, revision: str | None, receipts: Iterable[answers.Receipt]
    ) -> EngineView:
        """From `/status`, `/document?of=desired` with the revision of its tag, and `/receipts` of our pushes. They
        are three answers of three moments: where the first two are of different documents the text counts, and it
        does not serve yet."""
        return cls(
            desired=short(revision),
            active=short(told.revision.active),
            document=None if revision is None else document,
            models=tuple(ModelView.of(name, each) for name, each in told.models.items()),
            receipts=tuple(ReceiptView.of(each) for each in receipts),
            hold=None if told.hold is None else _held(told.hold),
        )


def short(revision: str | None) -> str | None:
    """As revisions are shown."""
    return None if revision is None else revision[:SHOWN_DIGITS]


def problem_text(problem: answers.Problem) -> str:
    """`spec.watermarks.soft: HCF-1019: what is wrong (what to do)`, from one of a receipt's or a plan's problems."""
    text = f"{place_in_spec(problem.path)}: {problem.code}: {problem.message}"
    return _cut(f"{text} ({problem.hint})" if problem.hint else text)


def place_in_spec(path: str) -> str:
    """Where in a HalogenModel that stands which has this path in the document: the document's one model is the spec
    itself, and the keys of its listener are `auth`."""
    if path.startswith("server.auth"):
        return f"spec.{path.removeprefix('server.')}"
    inner = _MODEL.match(path)
    return f"spec.{path[inner.end() :]}".removesuffix(".") if inner else "spec"


def _cut(text: str) -> str:
    return text if len(text) <= _PROBLEM_CHARACTERS else f"{text[: _PROBLEM_CHARACTERS - 4]} ..."


def _share(loading: answers.Loading) -> float:
    done, total = loading.loaded_bytes or 0, loading.total_bytes or 0
    return min(1.0, done / total) if total else 0.0


def _held(hold: answers.Hold) -> str:
    since = dt.datetime.fromtimestamp(hold.since, dt.UTC)
    return f"since {since:%Y-%m-%d %H:%M:%S} UTC by {_cut(hold.by)}"
