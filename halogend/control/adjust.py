"""A change of a generation that runs: every worker prepares it, then all take it, or none does.

Owns the messages of a live change and its bytes in the ledger; which generation serves is not its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from halogend.control.generation import Generation
from halogend.control.house import House, ledger_name
from halogend.control.target import Target, with_pool
from halogend.wire.messages import PrepareEngine, PrepareText


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What the workers of `generation` hold and have not taken yet. `claim` is its name in the ledger: until
    the engine has confirmed it, the more of before and after is nobody else's."""

    generation: Generation
    house: House
    text: PrepareText | None
    engine: PrepareEngine | None
    claim: object

    def commit(self, settling: Callable[[], None] = lambda: None) -> None:
        """`settling` is called when all have confirmed it, before what came free is anybody's."""

        def settled() -> None:
            settling()
            self.house.settle(self.generation, self.claim)

        self.generation.commit(self.text, self.engine, settled)

    def discard(self) -> None:
        """The inverse of `prepare`."""
        self.generation.discard(self.text, self.engine)
        self.house.drop(self.generation, self.claim)


async def prepare(
    generation: Generation, active: Target, target: Target, house: House, most_kv_bytes: int | None = None
) -> Adjustment:
    """From `active` to `target`, with as much pool as there is room for now, and no more than `most_kv_bytes`.
    Raises UpdateError; then nothing is held and the ledger is as before."""
    name = ledger_name(generation)
    most = [] if most_kv_bytes is None else [most_kv_bytes]
    kv_bytes = min(house.grant(target, besides=name), generation.spec.engine.pool_reserve_bytes, *most)
    limits = with_pool(target, kv_bytes)
    text = engine = None
    if target.spec.text != active.spec.text:
        text = PrepareText(
            update=generation.next_update(),
            limits=target.spec.text.limits,
            chat_template=target.spec.text.chat_template,
        )
    if limits != generation.engine_limits:
        engine = PrepareEngine(update=generation.next_update(), limits=limits)
    claim = object()
    house.claim(generation, claim, replace(target.holding, kv_bytes=kv_bytes))
    try:
        await generation.prepare(text, engine)
    except BaseException:
        house.drop(generation, claim)
        raise
    return Adjustment(generation, house, text, engine, claim)
