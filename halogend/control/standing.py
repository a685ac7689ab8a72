"""How the daemon stands, in one line for people: what loads, what serves, what is wrong.

Reads units and receipts, writes nothing. The full account is `status`.
"""

from __future__ import annotations

from typing import Any

from halogend.control.load_progress import progress_of
from halogend.control.receipts import Outcome, Receipt
from halogend.control.reconciler import Reconciler
from halogend.control.unit import Unit

_BAD = (Outcome.REJECTED, Outcome.FAILED, Outcome.PARTIALLY_APPLIED, Outcome.ROLLED_BACK)


def standing(reconciler: Reconciler) -> str:
    """Such as `serving 1 of 2 models; loading code: 43 % (412 MiB of 958 MiB)`."""
    units = [unit for unit in reconciler.house.units.values() if unit.is_wanted]
    if reconciler.accepted is None:
        return _bad_edit(reconciler) or _without_document(reconciler)
    parts = [_serving(units), *(_loading(unit) for unit in units), *(_trouble(unit) for unit in units)]
    parts += [_lingering(each) for each in reconciler.house.lingering.view()]
    parts.append(_bad_edit(reconciler))
    return "; ".join(part for part in parts if part)


def stopping(reconciler: Reconciler) -> str:
    """Such as `stopping: 3 requests are not done`."""
    units = reconciler.house.units.values()
    left = sum(len(each.leases) for unit in units for each in unit.generations)
    return f"stopping: {left} request{'s are' if left != 1 else ' is'} not done"


def _without_document(reconciler: Reconciler) -> str:
    is_reading = not reconciler.source.stays or any(each.outcome is None for each in reconciler.receipts.all())
    return "reading the document" if is_reading else "no document yet: one must be handed in"


def _serving(units: list[Unit]) -> str:
    serving = [unit.name for unit in units if unit.alive() is not None]
    if not units:
        return "no model is asked for"
    if len(serving) == len(units) <= 3:
        return f"serving {', '.join(serving)}"
    return f"serving {len(serving)} of {len(units)} model{'s' if len(units) != 1 else ''}"


def _loading(unit: Unit) -> str:
    into = unit.filling
    return "" if into is None else f"loading {unit.name}: {progress_of(into.parts).words}"


def _lingering(view: dict[str, Any]) -> str:
    named = ", ".join(f"{role} {pid}" for role, pid in view["pids"].items())
    return f"{view['replica']} was killed and does not end ({named}): its memory is not back"


def _trouble(unit: Unit) -> str:
    if unit.trouble is not None and unit.alive() is None:
        return f"{unit.name}: {unit.trouble}"
    return f"{unit.name}: {unit.degraded}" if unit.degraded else ""


def _bad_edit(reconciler: Reconciler) -> str:
    """What is wrong with the newest edit, once that is decided."""
    newest = reconciler.receipts.all()[-1:]
    if not newest or newest[0].outcome not in _BAD:
        return ""
    return f"last edit ({newest[0].id}) {_words(newest[0])}"


def _words(receipt: Receipt) -> str:
    outcome = str(receipt.outcome).replace("_", " ")
    errors = [f"{each.model}: {each.error}" for each in receipt.models.values() if each.error]
    reasons = [*(str(problem) for problem in receipt.problems), *errors]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{outcome}: {reasons[0]}{more}" if reasons else outcome
