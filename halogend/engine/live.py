"""The limits in force, and those that are prepared: a live change comes in two halves."""

from __future__ import annotations

from halogend.engine.interface import Loaded
from halogend.engine.limits import check_limits, least_blocks, pool_blocks
from halogend.sched.errors import InvariantError
from halogend.sched.request import Refusal, Request
from halogend.wire.control import Prepared, PrepareEngine
from halogend.wire.specs import EngineLimits, EngineSpec


class LiveLimits:
    """`current` holds until `commit`. One writer: the loop."""

    def __init__(self, spec: EngineSpec, loaded: Loaded) -> None:
        self.current = spec.limits
        self._loaded = loaded
        self._context_tokens = spec.max_model_len
        self._prepared: dict[int, EngineLimits] = {}

    def prepare(self, message: PrepareEngine, promised_tokens: int) -> Prepared:
        """`promised_tokens`: the most positions that a request taken already may compute."""
        failure = check_limits(message.limits, self._loaded, self._context_tokens, promised_tokens)
        if failure is None:
            self._prepared[message.update] = message.limits
        return Prepared(update=message.update, failure=failure)

    def discard(self, update: int) -> None:
        self._prepared.pop(update, None)

    def commit(self, update: int) -> EngineLimits:
        """What is in force from now on. Raises InvariantError for what was not prepared."""
        limits = self._prepared.pop(update, None)
        if limits is None:
            raise InvariantError(f"update {update} is committed but was not prepared")
        self.current = limits
        return limits

    def refusal_ahead(self, request: Request) -> Refusal | None:
        """Of a request that would not fit any more once what is prepared is committed."""
        tokens, loaded = request.positions_at_most, self._loaded
        if all(
            least_blocks(limits, loaded, tokens) <= pool_blocks(limits, loaded) for limits in self._prepared.values()
        ):
            return None
        return Refusal("kv_too_small", "the KV pool is about to be made smaller than this request needs")
