"""What there is of a model, as values: what serves, loads and drains, by its names in the ledger.

Pure. `presence` makes them of what runs; plans and forecasts read them and know no process.
"""

from __future__ import annotations

from dataclasses import dataclass

from halogend.control.target import Target


@dataclass(frozen=True, slots=True)
class Returnable:
    """An old generation by its name in the ledger: what it was when it served, the most its pool can grow to, and
    how much more working memory it takes than was estimated. Of several replicas each is one, and `target` the
    generation as it is seen from there. `leaving` are those that it was to go on without before: they come back with
    it alone."""

    name: str
    target: Target
    reserve_bytes: int
    surplus_bytes: int = 0
    leaving: tuple[Returnable, ...] = ()


def returning(found: tuple[Returnable, ...], target: Target) -> Returnable | None:
    """The newest that is what `target` needs: it need not be loaded."""
    return next((each for each in reversed(found) if each.target.same_generation(target)), None)


def returning_there(found: tuple[Returnable, ...], target: Target) -> Returnable | None:
    """The same, of those where `target` is: the replica that is taken back as it."""
    return returning(tuple(each for each in found if each.target.device == target.device), target)


@dataclass(frozen=True, slots=True)
class Present:
    """What there is of one model; `serving`, `loading` and `draining` are names in the ledger. `active` is what
    serves, `coming` what loads, `returnable` those of `draining` that may serve again; `reserve_bytes` the most
    the serving pool can grow to, `surplus_bytes` how much more working memory it takes than was estimated. All
    this is of one replica, the first, on `device`, and targets are seen from there; `others` are the same for the
    further ones. `leaving` are replicas that the generation which serves was to go on without: it alone may take them
    back."""

    active: Target | None = None
    serving: str | None = None
    reserve_bytes: int = 0
    surplus_bytes: int = 0
    coming: Target | None = None
    loading: str | None = None
    draining: tuple[str, ...] = ()
    returnable: tuple[Returnable, ...] = ()
    leaving: tuple[Returnable, ...] = ()
    device: str = ""
    others: tuple[Present, ...] = ()

    @property
    def parts(self) -> tuple[Present, ...]:
        """One for each replica."""
        return (self, *self.others)

    @property
    def all_returnable(self) -> tuple[Returnable, ...]:
        """Wherever it stands."""
        return tuple(each for part in self.parts for each in part.returnable)
