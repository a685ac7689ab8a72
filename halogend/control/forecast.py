"""What a change will take of each device: bytes now, at the most on the way, and after.

Pure: plays the order in which `converge` enters bytes into the ledger and takes them out, with every
old generation kept as long as nothing needs its memory. With short drains it is less, never more.
Loads go one at a time, in an order that chance may change: several are played, and the highest peak counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halogend.control.ledger import Holding
from halogend.control.target import Target, Way


@dataclass(frozen=True, slots=True)
class Returnable:
    """An old generation by its name in the ledger: what it was when it served, the most its pool can grow to, and
    how much more working memory it takes than was estimated."""

    name: str
    target: Target
    reserve_bytes: int
    surplus_bytes: int = 0


def returning(found: tuple[Returnable, ...], target: Target) -> Returnable | None:
    """The newest that is what `target` needs: it need not be loaded."""
    return next((each for each in reversed(found) if each.target.same_generation(target)), None)


@dataclass(frozen=True, slots=True)
class Present:
    """What there is of one model; `serving`, `loading` and `draining` are names in the ledger. `active` is what
    serves, `coming` what loads, `returnable` those of `draining` that may serve again; `reserve_bytes` the most
    the serving pool can grow to, `surplus_bytes` how much more working memory it takes than was estimated. All
    this is of one replica, the first, on `device`; `others` are the same for the further ones."""

    active: Target | None = None
    serving: str | None = None
    reserve_bytes: int = 0
    surplus_bytes: int = 0
    coming: Target | None = None
    loading: str | None = None
    draining: tuple[str, ...] = ()
    returnable: tuple[Returnable, ...] = ()
    device: str = ""
    others: tuple[Present, ...] = ()

    @property
    def parts(self) -> tuple[Present, ...]:
        """One for each replica."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes of one device that generations hold."""

    weights_bytes: int = 0
    working_bytes: int = 0
    kv_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.working_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class DeviceForecast:
    """`during` is the model whose load brings the peak; None where now or after is the most."""

    device: str
    now: Use
    peak: Use
    after: Use
    during: str | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """By model: `starts`, what its load takes as it begins; `after`, what it holds in the end; `shrinks`, its old
    pool before and after it gave memory for that; `misfits`, the bytes that others hold when its turn comes and
    there is no room for it, whatever the order."""

    devices: tuple[DeviceForecast, ...]
    starts: Mapping[str, Holding]
    after: Mapping[str, Holding]
    shrinks: Mapping[str, tuple[int, int]]
    misfits: Mapping[str, int]


def forecast(
    held: Mapping[str, Holding],
    present: Mapping[str, Present],
    wanted: Mapping[str, Target],
    *,
    together: bool = False,
) -> Forecast:
    """`held` is the ledger as it stands; `present` and `wanted` are by model, in the order of a document.
    `together`: nothing switches and nothing is removed before all are ready."""
    plays = [_played(held, present, wanted, replace(order, together=together)) for order in _ORDERS]
    hasty = [_played(held, present, wanted, replace(o, together=together, overtakes=True)) for o in _ORDERS]
    likely, possible = plays[0], [*plays, *(play for play in hasty if not play.misfits)]
    devices = sorted({each.device for each in (*held.values(), *(t.holding for t in wanted.values()))})
    return Forecast(
        devices=tuple(_highest([play.device(each, held) for play in possible]) for each in devices),
        starts=likely.starts,
        after={name: likely.held[model.serving] for name, model in likely.models.items() if model.serving},
        shrinks=likely.shrinks,
        misfits=likely.misfits if all(play.misfits for play in plays) else {},
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """Which loads come last: those that wait for their own old generation to end, those of new models. `together`:
    all are followed by their switches, and those by all that leaves. `overtakes`: a load that fits goes before one
    that waits for room."""

    replaced_last: bool
    new_last: bool
    together: bool = False
    overtakes: bool = False


_ORDERS = tuple(_Order(replaced_last, new_last) for replaced_last in (True, False) for new_last in (True, False))


def _played(
    held: Mapping[str, Holding], present: Mapping[str, Present], wanted: Mapping[str, Target], order: _Order
) -> _Course:
    course = _Course(dict(held), {name: _Model(each) for name, each in present.items()}, wanted)
    course.run(order)
    return course


def _highest(forecasts: list[DeviceForecast]) -> DeviceForecast:
    """The first, with the highest peak of all."""
    highest = max(forecasts, key=lambda each: each.peak.total_bytes)
    return replace(forecasts[0], peak=highest.peak, during=highest.during)


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


class _Course:
    """The ledger as it goes on. `leaving` are generations on their way out, oldest first, with their
    model; `awaited` models whose load has not begun: no pool grows into what they need."""

    def __init__(self, held: dict[str, Holding], models: dict[str, _Model], wanted: Mapping[str, Target]) -> None:
        self.held = held
        self.models = models
        self.starts: dict[str, Holding] = {}
        self.shrinks: dict[str, tuple[int, int]] = {}
        self.misfits: dict[str, int] = {}
        self._wanted = wanted
        self._parked: list[tuple[str, str]] = []
        self._awaited: list[str] = []
        self._leaving = [(each, name) for name, model in models.items() for each in model.was.draining]
        self._peaks: dict[str, tuple[Use, str | None]] = {}

    def run(self, order: _Order) -> None:
        """In converge's order: what is not wanted goes first; then one load after the other."""
        for name in self._wanted:
            self.models.setdefault(name, _Model(Present()))
        self._take_back()
        to_load = [name for name, target in self._wanted.items() if not self.models[name].serves(target)]
        coming = [name for name in to_load if self.models[name].comes(self._wanted[name])]
        for name, model in self.models.items():
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
        self._leaving += self._parked
        while self._leaving:
            self._reclaim(0)

    def _load_all(self, loads: list[str], coming: list[str], begun: list[str], order: _Order) -> None:
        """One after the other, each followed by its switch, or all followed by all switches."""
        newcomers = {name: str(self.models[name].was.loading) if name in coming else _newcomer(name) for name in loads}
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

    def _loads(self, to_load: list[str], coming: list[str], order: _Order) -> list[str]:
        """One that runs already comes first; otherwise as the document has them."""

        def rank(name: str) -> tuple[bool, bool, bool]:
            has_old = self.models[name].serving is not None
            waits = has_old and self._wanted[name].ends_old_first
            return name not in coming, order.replaced_last and waits, order.new_last and not has_old

        return sorted(to_load, key=rank)

    def device(self, device: str, before: Mapping[str, Holding]) -> DeviceForecast:
        now, after = _use(before, device), _use(self.held, device)
        peak, during = self._peaks.get(device, (Use(), None))
        for each in (now, after):
            if each.total_bytes >= peak.total_bytes:
                peak, during = each, None
        return DeviceForecast(device, now, peak, after, during)

    def _take_back(self) -> None:
        """Without a load, at once: the old one serves again, and what served meanwhile is on its way out."""
        for name, target in self._wanted.items():
            model = self.models[name]
            back = None if model.serves(target) else returning(model.was.returnable, target)
            if back is not None:
                self._leaving.remove((back.name, name))
                self._leave(name)
                model.serving, model.active, model.reserve_bytes = back.name, target, back.reserve_bytes
                model.surplus_bytes = back.surplus_bytes

    # --- steps ----------------------------------------------------------------------------------------

    def _may_begin(self, name: str) -> bool:
        """Without waiting for anything: beside an old generation that need not go first."""
        target, model = self._wanted[name], self.models[name]
        is_held_up = model.serving is not None and (target.ends_old_first or bool(model.was.draining))
        return not is_held_up and target.fits_beside(self._taken(target))

    def _end_first(self, to_load: list[str]) -> None:
        for name in to_load:
            if self._wanted[name].ends_old_first:
                self._leave(name)

    def _prepare_live(self, to_load: list[str]) -> None:
        """What is prepared and not in force holds the more of before and after."""
        for name, target in self._wanted.items():
            serving = self.models[name].serving
            if serving is not None and name not in to_load:
                kv_bytes = min(target.granted_beside(self._taken(target, serving)), self.models[name].reserve_bytes)
                self.held[serving] = self.held[serving].covering(replace(target.holding, kv_bytes=kv_bytes))
        self._look(None)

    def _update_and_withdraw(self, to_load: list[str]) -> None:
        """Live changes go on side by side: at the worst, pools that grow come before those that shrink."""
        live = []
        for name, model in self.models.items():
            if name not in self._wanted:
                self._leave(name)
            elif name not in to_load:
                model.active = self._wanted[name]
                live.append(name)
        self._resize_together(sorted(live, key=self._growth_bytes, reverse=True))
        self._resize_all()

    def _growth_bytes(self, name: str) -> int:
        """How much more a live change wants than what is there."""
        serving = self.models[name].serving
        return 0 if serving is None else self._wanted[name].holding.total_bytes - self.held[serving].total_bytes

    def _make_room(self, name: str) -> None:
        """As converge waits: for its own old ones, then for whatever is on its way out."""
        target, model = self._wanted[name], self.models[name]
        if model.serving is not None or target.ends_old_first:
            while (own := self._first_leaving(name)) is not None:
                self._reclaim(own)
        while not target.fits_beside(self._taken(target)):
            if self._leaving:
                self._reclaim(0)
            elif not self._shrink(name):
                self.misfits[name] = self._taken(target)
                return

    def _shrink(self, name: str) -> bool:
        """The old pool gives what is missing; False where that would leave less than one full request."""
        target, model = self._wanted[name], self.models[name]
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
        self.starts[name] = self.held[_newcomer(name)] = holding
        self._awaited.remove(name)
        self._look(name)
        self._resize_all()

    def _follow(self, name: str, newcomer: str) -> None:
        """The switch: the newcomer serves, what served is on its way out, or stands by for a probation."""
        is_tried = self.models[name].serving is not None and self._wanted[name].config.probation is not None
        self._leave(name)
        if is_tried:
            self._parked.append(self._leaving.pop())
        target, model = self._wanted[name], self.models[name]
        model.serving, model.active = newcomer, target
        model.reserve_bytes, model.surplus_bytes = target.spec.engine.pool_reserve_bytes, 0
        self._resize_all()

    def _leave(self, name: str) -> None:
        model = self.models[name]
        if model.serving is not None:
            self._leaving.append((model.serving, name))
            model.serving = None

    def _reclaim(self, index: int) -> None:
        """Its bytes are back, and every pool takes what it may."""
        self.held.pop(self._leaving.pop(index)[0], None)
        self._resize_all()

    def _resize_all(self) -> None:
        for name in self.models:
            self._resize_together([name])

    def _resize_together(self, names: list[str]) -> None:
        """While it goes on each takes the more of what it held and what it will hold."""
        settled: dict[str, Holding] = {}
        for name in names:
            model = self.models[name]
            if model.serving is not None and model.active is not None and not self._is_shrunk(name):
                target = model.active.over(model.surplus_bytes)
                kv_bytes = min(self._granted(name, target, model.serving), model.reserve_bytes)
                settled[model.serving] = replace(target.holding, kv_bytes=kv_bytes)
                self.held[model.serving] = self.held[model.serving].covering(settled[model.serving])
        self._look(None)
        self.held |= settled

    def _granted(self, name: str, target: Target, serving: str) -> int:
        """KV bytes a pool that serves may have: it keeps what it has, and grows into what no other waits for."""
        beside = [holding for key, holding in self.held.items() if key != serving]
        awaited = [self._wanted[each].least for each in self._awaited if each != name]
        return target.grown_beside(self.held[serving], beside, awaited)

    def _is_shrunk(self, name: str) -> bool:
        """Until its newcomer serves."""
        return name in self.shrinks and self.models[name].active is not self._wanted[name]

    def _first_leaving(self, name: str) -> int | None:
        return next((index for index, each in enumerate(self._leaving) if each[1] == name), None)

    # --- bytes ----------------------------------------------------------------------------------------

    def _taken(self, target: Target, besides: str = "") -> int:
        return target.taken_of(holding for name, holding in self.held.items() if name != besides)

    def _look(self, during: str | None) -> None:
        for device in {each.device for each in self.held.values()}:
            use = _use(self.held, device)
            if device not in self._peaks or use.total_bytes > self._peaks[device][0].total_bytes:
                self._peaks[device] = (use, during)


def _newcomer(name: str) -> str:
    """No generation has this number."""
    return f"{name}#new"


def _use(held: Mapping[str, Holding], device: str) -> Use:
    there = [each for each in held.values() if each.device == device]
    return Use(
        sum(each.weights_bytes for each in there),
        sum(each.working_bytes for each in there),
        sum(each.kv_bytes for each in there),
    )
