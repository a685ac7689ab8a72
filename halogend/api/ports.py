"""What the HTTP side needs of the rest of the daemon, as protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from halogend.control.draining import Draining
from halogend.control.events import Events
from halogend.control.planning import Given
from halogend.control.push import Push
from halogend.control.receipts import Receipt
from halogend.control.requests import InferenceRequest, ServedModel
from halogend.wire.requests import Delta, TextEvent


class Answer(Protocol):
    """One request's hold on a generation; the holder must `close` it, whatever happens. A Delta before which nothing
    waits in `events` is offered to `tap` first, which takes it or does not (False), and must not wait."""

    tap: Callable[[Delta], bool] | None

    @property
    def model(self) -> str:
        """The canonical name, whatever alias was asked for."""

    @property
    def generation(self) -> int: ...

    def events(self) -> AsyncIterator[TextEvent]:
        """Accepted, Delta..., and exactly one Finished, always last. Never raises for an engine's
        death: that is a Finished with a failure. To be iterated once."""

    def close(self) -> None:
        """Idempotent; aborts the request when it has not finished."""


class Router(Protocol):
    """The way from a request to a generation."""

    async def submit(self, request: InferenceRequest) -> Answer:
        """May wait while nothing serves. Raises RequestError."""

    def served(self) -> tuple[ServedModel, ...]:
        """Every model of the active document, in its order."""

    def record_end(self, name: str, generation: int, *, is_error: bool) -> None:
        """A request that a generation answered is over; `is_error` is a 5xx or an error event."""

    def record_duration(self, name: str, seconds: float) -> None:
        """How long a complete answer took, from arrival to its end; `name` is canonical."""

    def ready(self, model: str | None) -> bool:
        """Whether this model (None: enough models, as the document says) can serve now. An unknown
        name is never ready."""

    def health(self) -> dict[str, Any]:
        """For people and monitors, JSON-ready; `healthy` (bool) is always in it."""


class Admin(Protocol):
    """What an operator may see and ask for."""

    def status(self) -> dict[str, Any]: ...

    def receipts(self) -> tuple[Receipt, ...]:
        """Kept receipts, oldest first."""

    def receipt(self, receipt_id: str) -> Receipt | None: ...

    def reload(self, trigger: str, actor: str, *, force: bool = False) -> Receipt:
        """Opens the receipt now; the work goes on in the background. While changes are held only
        `force` gets through."""

    def document(self, *, is_desired: bool = False) -> tuple[str, str | None]:
        """The canonical text of the active document, or of the one that is asked for now, and its revision;
        empty and None before the first."""

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        """Applies a document that is handed in. Raises RequestError (revision_mismatch, stale_origin)."""

    async def plan_put(self, push: Push, *, force: bool = False) -> dict[str, Any]:
        """What `put` would do; raises as it does."""

    async def plan(self, given: Given | None) -> dict[str, Any]:
        """What this document, or what the source holds, would do now. Changes nothing."""

    async def plan_rollback(self, receipt_id: str | None) -> dict[str, Any]:
        """Raises RequestError, as `rollback` does."""

    def rollback(self, receipt_id: str | None, actor: str) -> Receipt:
        """Applies the document that the receipt made active, or the one before. Raises RequestError."""

    def hold(self, actor: str) -> dict[str, Any]: ...

    def resume(self, actor: str) -> Receipt | None:
        """The receipt of what was put off, if anything was."""

    def ledger(self) -> dict[str, Any]: ...

    def cache(self) -> dict[str, Any]:
        """What each generation's KV pool holds and what of prompts was reused, as its engine last said."""

    def events(self) -> Events:
        """What happens, for whoever follows it."""

    def draining(self, model: str) -> Draining:
        """What drains of this model now. Raises RequestError."""
