"""A change of a generation that runs: every worker prepares it, then all take it, or none does.

Replicas that it gains are loaded beforehand, or left a moment ago and drain no more meanwhile; those that it loses
drain afterwards. Owns the messages of a live change and its bytes in the ledger; which generation serves is not its
business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.replica import Replica
from halogend.control.retired import Leaver, Stage
from halogend.control.target import Target, with_pool
from halogend.wire.control import PrepareEngine, PrepareText
from halogend.wire.specs import EngineLimits


@dataclass(frozen=True, slots=True)
class Joining:
    """Replicas that the generation gains: `newcomers` are loaded and take no request yet, `returners` were to leave it,
    and their drain stands still."""

    newcomers: tuple[Replica, ...] = ()
    returners: tuple[Leaver, ...] = ()

    @property
    def returning(self) -> tuple[Replica, ...]:
        return tuple(each.replica for each in self.returners)

    def put_back(self) -> None:
        """Nothing comes of it: those that have not returned drain on."""
        for each in self.returners:
            if each.stage is Stage.TAKEN:
                each.put_back()


NOBODY = Joining()


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What the workers of `generation` hold and have not taken yet. `claim` is its name in the ledger: until
    an engine has confirmed it, the more of before and after is nobody else's. `weights` are those of the replicas
    that stay or return, `leavers` are on no device of the target."""

    generation: Generation
    house: House
    text: PrepareText | None
    engines: Mapping[Replica, PrepareEngine]
    claim: object
    weights: Mapping[Replica, float]
    joining: Joining
    leavers: tuple[Replica, ...]

    def commit(self, settling: Callable[[], None] = lambda: None) -> None:
        """`settling` is called when an engine has confirmed it, before what came free is anybody's."""

        def settled(replica: Replica) -> None:
            settling()
            self.house.settle(replica, self.claim)

        for returner in self.joining.returners:
            returner.serve_again()
        self.generation.live.commit(self.text, self.engines, settled)
        for replica, weight in self.weights.items():
            replica.weight = weight
        for newcomer in self.joining.newcomers:
            self.generation.join(newcomer)
        for leaver in self.leavers:
            self.generation.drop(leaver)

    async def discard(self) -> None:
        """The inverse of `prepare`."""
        self.rest()
        await self.let_go()

    def rest(self) -> None:
        """The first half of it: the workers hold nothing any more, what is claimed is kept. It is prepared anew then,
        or `let_go`."""
        self.generation.live.discard(self.text, self.engines, self.joining.returning)

    async def let_go(self) -> None:
        self.unclaim()
        self.joining.put_back()
        await self.house.end(self.joining.newcomers)

    def unclaim(self) -> None:
        _drop(self.weights, self.claim, self.house)


async def prepare(  # what is there, what is wanted, and what was made ready for it
    generation: Generation,
    active: Target,
    target: Target,
    house: House,
    most_kv_bytes: int | None = None,
    joining: Joining = NOBODY,
) -> Adjustment:
    """From `active` to `target`, with as much pool as there is room for now, and no more than `most_kv_bytes`.
    Raises UpdateError; then nothing is held and the ledger is as before. `joining` are the caller's until then."""
    places = _staying(generation, target) | _places(joining.returning, target)
    staying = {each: house.running(each, part) for each, part in places.items()}
    limits = _limits(staying, house, most_kv_bytes)
    text = _text(generation, active, target, joining.returning)
    engines = {
        replica: PrepareEngine(update=generation.live.next_update(), limits=limits[replica])
        for replica in staying
        if limits[replica] != replica.engine_limits
    }
    claim = object()
    try:
        for replica, part in staying.items():
            house.claim(replica, claim, replace(part.holding, kv_bytes=limits[replica].pool_bytes))
        await generation.live.prepare(text, engines, joining.returning)
    except BaseException:
        _drop(staying, claim, house)
        raise
    weights = {replica: part.spec.weight for replica, part in staying.items()}
    leavers = tuple(replica for replica in generation.replicas if replica not in staying)
    return Adjustment(generation, house, text, engines, claim, weights, joining, leavers)


def gained(generation: Generation, target: Target) -> list[Target]:
    """The replicas of `target` that the generation has not."""
    staying = [id(part) for part in _staying(generation, target).values()]
    return [part for part in target.parts if id(part) not in staying]


def _limits(staying: Mapping[Replica, Target], house: House, most_kv_bytes: int | None) -> dict[Replica, EngineLimits]:
    most = [] if most_kv_bytes is None else [most_kv_bytes]
    model = next((part.name for part in staying.values()), "")
    granted = house.grown(model, staying.values(), [replica.name for replica in staying])
    return {
        replica: with_pool(part, min(kv_bytes, replica.spec.engine.pool_reserve_bytes, *most))
        for (replica, part), kv_bytes in zip(staying.items(), granted, strict=True)
    }


def _staying(generation: Generation, target: Target) -> dict[Replica, Target]:
    """Replicas that the target has a place for. One alone stays whatever its device is called."""
    if len(generation.replicas) == len(target.parts) == 1:
        return {generation.replicas[0]: target}
    return _places(generation.replicas, target)


def _places(replicas: Iterable[Replica], target: Target) -> dict[Replica, Target]:
    found = {replica: target.part_on(replica.spec.device) for replica in replicas}
    return {replica: part for replica, part in found.items() if part is not None}


def _text(
    generation: Generation, active: Target, target: Target, returning: Sequence[Replica] = ()
) -> PrepareText | None:
    """Those that return have taken none of what was committed since they left."""
    wanted = target.spec.text
    held = [each.changes.text for each in returning]
    is_held = all((each.limits, each.chat_template) == (wanted.limits, wanted.chat_template) for each in held)
    if wanted == active.spec.text and is_held:
        return None
    return PrepareText(update=generation.live.next_update(), limits=wanted.limits, chat_template=wanted.chat_template)


def _drop(replicas: Iterable[Replica], claim: object, house: House) -> None:
    for replica in replicas:
        house.drop(replica, claim)
