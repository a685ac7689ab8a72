"""The course of a change, played: in what order `converge` enters bytes into the ledger and takes them out.

Pure. Every old generation is kept as long as nothing needs its memory: with short drains it is less, never
more. Owns the bytes on the way; what is said of them is the forecast's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halogend.control.ledger import Holding, together
from halogend.control.peaks import DeviceForecast, Peaks
from halogend.control.present import Present, returning_there
from halogend.control.target import Target, Way


@dataclass(frozen=True, slots=True)
class Order:
    """Which loads come last: those that wait for their own old generation to end, those of new models. `together`:
    all are followed by their switches, and those by all that leaves. `overtakes`: a load that fits goes before one
    that waits for room."""

    replaced_last: bool
    new_last: bool
    together: bool = False
    overtakes: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """What a load takes as it begins: `grows_bytes` is by how much what its device holds grows, which is less than all
    of `holding` where somebody has mapped the same file already."""

    holding: Holding
    grows_bytes: int

    def beside(self, other: Start) -> Start:
        """Both together, for people."""
        return Start(self.holding.beside(other.holding), self.grows_bytes + other.grows_bytes)


@dataclass
class _Model:
    """What is played of one model; begins as what there is."""

    was: Present
    serving: str | None = field(init=False)
    active: Target | None = field(init=False)
    reserve_bytes: int = field(init=False)
    surplus_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.surplus_bytes = self.was.surplus_bytes
        self.serving, self.active, self.reserve_bytes = self.was.serving, self.was.active, self.was.reserve_bytes

    def serves(self, target: Target) -> bool:
        return self.serving is not None and self.active is not None and self.active.same_generation(target)

    def comes(self, target: Target) -> bool:
        """Is the load that runs one for this target?"""
        return self.was.coming is not None and self.was.coming.same_generation(target)


class Course:
    """The ledger as it goes on. `leaving` are generations on their way out, oldest first, with their
    model; `awaited` models whose load has not begun: no pool grows into what they need."""

    def __init__(
        self, held: Mapping[str, Holding], present: Mapping[str, Present], wanted: Mapping[str, Target]
    ) -> None:
        self.held = dict(held)
        self.starts: dict[str, Start] = {}
        self.shrinks: dict[str, tuple[int, int]] = {}
        self.misfits: dict[str, tuple[Target, int]] = {}
        self._before = held
        self._models = {name: _Model(each) for name, each in present.items()}
        self._wanted = wanted
        self._later: list[tuple[str, str]] = []
        self._awaited: list[str] = []
        self._leaving = [(each, name) for name, was in present.items() for each in was.draining]
        self._peaks = Peaks()

    def run(self, order: Order) -> None:
        """In converge's order: what is not wanted goes first; then one load after the other."""
        for name in self._wanted:
            self._models.setdefault(name, _Model(Present()))
        self._take_back(order)
        to_load = [name for name, target in self._wanted.items() if not self._models[name].serves(target)]
        coming = [name for name in to_load if self._models[name].comes(self._wanted[name])]
        for name, model in self._models.items():
            if model.was.loading is not None and name not in coming:
                self.held.pop(model.was.loading, None)
        loads = self._loads(to_load, coming, order)
        self._awaited = [name for name in loads if name not in coming]
        # A load that fits at once begins before another model has given anything back.
        begun = loads[:1] if loads and not coming and self._may_begin(loads[0]) else []
        for name in begun:
            self._begin(name)
        self._end_first(to_load)
        if order.together:
            self._prepare_live(to_load)
        else:
            self._update_and_withdraw(to_load)
        self._load_all(loads, coming, begun, order)
        if order.together:
            self._update_and_withdraw(to_load)
        self._leaving += self._later
        while self._leaving:
            self._reclaim(0)

    def _load_all(self, loads: list[str], coming: list[str], begun: list[str], order: Order) -> None:
        """One after the other, each followed by its switch, or all followed by all switches."""
        newcomers = {name: str(self._models[name].was.loading) if name in coming else _newcomer(name) for name in loads}
        left = list(loads)
        while left:
            at_once = [name for name in left if name in (*begun, *coming) or self._may_begin(name)]
            name = at_once[0] if order.overtakes and at_once else left[0]
            left.remove(name)
            if name not in (*begun, *coming):
                self._make_room(name)
                self._begin(name)
            if not order.together:
                self._follow(name, newcomers[name])
        for name in loads if order.together else ():
            self._follow(name, newcomers[name])

    def _loads(self, to_load: list[str], coming: list[str], order: Order) -> list[str]:
        """One that runs already comes first; otherwise as the document has them."""

        def rank(name: str) -> tuple[bool, bool, bool]:
            has_old = self._models[name].serving is not None
            waits = has_old and self._wanted[name].ends_old_first
            return name not in coming, order.replaced_last and waits, order.new_last and not has_old

        return sorted(to_load, key=rank)

    @property
    def after(self) -> dict[str, Holding]:
        """By model, where one serves in the end."""
        return {name: self.held[model.serving] for name, model in self._models.items() if model.serving is not None}

    def device(self, device: str) -> DeviceForecast:
        return self._peaks.of(device, self._before, self.held)

    def _take_back(self, order: Order) -> None:
        """Without a load: the old one serves again, and what served meanwhile is on its way out, at once or when
        all are ready."""
        for name, target in self._wanted.items():
            model = self._models[name]
            back = None if model.serves(target) else returning_there(model.was.returnable, target)
            if back is not None:
                self._leaving.remove((back.name, name))
                self._leave(name, later=order.together)
                model.serving, model.active, model.reserve_bytes = back.name, target, back.reserve_bytes
                model.surplus_bytes = back.surplus_bytes

    # --- steps ----------------------------------------------------------------------------------------

    def _may_begin(self, name: str) -> bool:
        """Without waiting for anything: beside an old generation that need not go first."""
        target, model = self._wanted[name], self._models[name]
        is_held_up = model.serving is not None and (target.ends_old_first or bool(model.was.draining))
        return not is_held_up and target.misfit(self.held.values()) is None

    def _end_first(self, to_load: list[str]) -> None:
        for name in to_load:
            if self._wanted[name].ends_old_first:
                self._leave(name)

    def _prepare_live(self, to_load: list[str]) -> None:
        """What is prepared and not in force holds the more of before and after."""
        for name, target in self._wanted.items():
            serving = self._models[name].serving
            if serving is not None and name not in to_load:
                kept = target.of_running(self.held[serving])
                kv_bytes = min(kept.granted_beside(self._taken(kept, serving)), self._models[name].reserve_bytes)
                self.held[serving] = self.held[serving].covering(replace(kept.holding, kv_bytes=kv_bytes))
        self._peaks.look(self.held, None)

    def _update_and_withdraw(self, to_load: list[str]) -> None:
        """Live changes go on side by side: at the worst, pools that grow come before those that shrink."""
        live = []
        for name, model in self._models.items():
            if name not in self._wanted:
                self._leave(name)
            elif name not in to_load:
                model.active = self._wanted[name]
                live.append(name)
        self._resize_together(sorted(live, key=self._growth_bytes, reverse=True))
        self._resize_all()

    def _growth_bytes(self, name: str) -> int:
        """How much more a live change wants than what is there."""
        serving = self._models[name].serving
        if serving is None:
            return 0
        held = self.held[serving]
        return self._wanted[name].of_running(held).holding.total_bytes - held.total_bytes

    def _make_room(self, name: str) -> None:
        """As converge waits: for its own old ones, then for whatever is on its way out."""
        target, model = self._wanted[name], self._models[name]
        if model.serving is not None or target.ends_old_first:
            while (own := self._first_leaving(name)) is not None:
                self._reclaim(own)
        while (misfit := target.misfit(self.held.values())) is not None:
            if self._leaving:
                self._reclaim(0)
            elif not self._shrink(name):
                self.misfits[name] = misfit
                return

    def _shrink(self, name: str) -> bool:
        """The old pool gives what is missing; False where that would leave less than one full request."""
        target, model = self._wanted[name], self._models[name]
        if target.way is not Way.SHRINK or model.serving is None or model.active is None:
            return False
        old = self.held[model.serving]
        kv_bytes = target.left_to(old, self._taken(target))
        if not model.active.floor_bytes <= kv_bytes < old.kv_bytes:
            return False
        self.shrinks[name] = old.kv_bytes, kv_bytes
        self.held[model.serving] = replace(old, kv_bytes=kv_bytes)
        return True

    def _begin(self, name: str) -> None:
        target = self._wanted[name]
        holding = replace(target.holding, kv_bytes=target.granted_beside(self._taken(target)))
        before = self._there(holding.device)
        self.held[_newcomer(name)] = holding
        self.starts[name] = Start(holding, self._there(holding.device) - before)
        self._awaited.remove(name)
        self._peaks.look(self.held, name)
        self._resize_all()

    def _follow(self, name: str, newcomer: str) -> None:
        """The switch: the newcomer serves, what served is on its way out, or stands by for a probation."""
        self._leave(name, later=self._wanted[name].config.probation is not None)
        target, model = self._wanted[name], self._models[name]
        model.serving, model.active = newcomer, target
        model.reserve_bytes, model.surplus_bytes = target.spec.engine.pool_reserve_bytes, 0
        self._resize_all()

    def _leave(self, name: str, *, later: bool = False) -> None:
        """`later`: nothing that is loaded may count on its bytes."""
        model = self._models[name]
        if model.serving is not None:
            (self._later if later else self._leaving).append((model.serving, name))
            model.serving = None

    def _reclaim(self, index: int) -> None:
        """Its bytes are back, and every pool takes what it may."""
        self.held.pop(self._leaving.pop(index)[0], None)
        self._resize_all()

    def _resize_all(self) -> None:
        for name in self._models:
            self._resize_together([name])

    def _resize_together(self, names: list[str]) -> None:
        """While it goes on each takes the more of what it held and what it will hold."""
        settled: dict[str, Holding] = {}
        for name in names:
            model = self._models[name]
            if model.serving is not None and model.active is not None and not self._is_shrunk(name):
                target = model.active.over(model.surplus_bytes).of_running(self.held[model.serving])
                kv_bytes = min(self._granted(name, target, model.serving), model.reserve_bytes)
                settled[model.serving] = replace(target.holding, kv_bytes=kv_bytes)
                self.held[model.serving] = self.held[model.serving].covering(settled[model.serving])
        self._peaks.look(self.held, None)
        self.held |= settled

    def _granted(self, name: str, target: Target, serving: str) -> int:
        """KV bytes a pool that serves may have: it keeps what it has, and grows into what no other waits for."""
        beside = [holding for key, holding in self.held.items() if key != serving]
        awaited = [self._wanted[each].least for each in self._awaited if each != name]
        return target.grown_beside(self.held[serving], beside, awaited)

    def _is_shrunk(self, name: str) -> bool:
        """Until its newcomer serves."""
        return name in self.shrinks and self._models[name].active is not self._wanted[name]

    def _first_leaving(self, name: str) -> int | None:
        return next((index for index, each in enumerate(self._leaving) if each[1] == name), None)

    # --- bytes ----------------------------------------------------------------------------------------

    def _there(self, device: str) -> int:
        return together(each for each in self.held.values() if each.device == device)

    def _taken(self, target: Target, besides: str = "") -> int:
        return target.taken_of(holding for name, holding in self.held.items() if name != besides)


def _newcomer(name: str) -> str:
    """No generation has this number."""
    return f"{name}#new"
