"""The status as a table that a person on call reads at a glance; a line that wants an eye begins with `!`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from halogend.cli.show import drift_line, hold_line, mib, receipt_lines, short

_LEAST_WIDTH = 60
_HEADS = ("MODEL", "STATE", "GEN", "REQUESTS", "KV POOL", "MEMORY", "PATH")
_RIGHT = frozenset({"GEN", "MEMORY"})
_FINE = frozenset({"applied", "unchanged", None})
_AS_ASKED = frozenset({"serving", "removed"})
Row = tuple[str, ...]


def status_lines(status: dict[str, Any], width: int = 120) -> list[str]:
    """No line of a table is longer than `width` columns; what is wrong is never cut."""
    lines = [_headline(status), *_revision(status), *_steering(status), *_access(status)]
    if status["models"]:
        lines += ["", *_models(status["models"], max(_LEAST_WIDTH, width))]
    if status.get("devices"):
        lines += ["", *_devices(status["devices"])]
    last = status["last_receipt"]
    if last is not None and last["outcome"] not in _FINE:
        lines += ["", "! last edit:", *(f"  {line}" for line in receipt_lines(last))]
    elif last is not None and last["outcome"] is None:
        lines += ["", f"  {receipt_lines(last)[0]}"]
    return lines


def _headline(status: dict[str, Any]) -> str:
    return f"halogend {status['version']}, up {_span(status['uptime_s'])}, source {status['source']}"


def _revision(status: dict[str, Any]) -> Iterator[str]:
    desired, active = (short(status["revision"][key]) for key in ("desired", "active"))
    if status["settled"]:
        yield f"  revision {active}: settled"
    elif desired == active:
        yield f"! revision {active}: not settled"
    else:
        yield f"! revision {active} is active, {desired} is asked for: not settled"


def _steering(status: dict[str, Any]) -> Iterator[str]:
    """What keeps the daemon from being what its source says."""
    watch = status.get("source_watch")
    if watch and watch["reason"]:
        yield f"! the source is looked at now and then: {watch['reason']}"
    if status["hold"]:
        yield f"! {hold_line(status['hold'])}"
    if status["drift"]:
        yield f"! {drift_line(status['drift'])}"
    if status["state"] and status["state"]["trouble"]:
        yield f"! state is not kept in {status['state']['directory']}: {status['state']['trouble']}"


def _access(status: dict[str, Any]) -> Iterator[str]:
    """Where it listens and who may come in."""
    for name, listener in status["listeners"].items():
        tls = listener["tls"]
        until = f", TLS until {tls['not_after'][:10]} ({_days(tls['expires_in_s'])})" if tls else ""
        yield f"  {name} on {listener['address']}{until}"
    for key in status["keys"]:
        previous = key["previous_valid_s"]
        old = f", the one before for {previous:.0f} s more" if previous else ""
        yield f"  key {key['name']} ({', '.join(key['scopes'])}) {key['fingerprint']}{old}"


# --- models -------------------------------------------------------------------------------------


def _models(models: dict[str, Any], width: int) -> Iterator[str]:
    rows: list[tuple[str, Row | str]] = [(" ", _HEADS)]
    for name, model in models.items():
        rows += _model(name, model)
    cells = [row for _, row in rows if isinstance(row, tuple)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(_HEADS))]
    for mark, row in rows:
        yield f"{mark} {row}" if isinstance(row, str) else _cut(f"{mark} {_laid_out(row, widths)}".rstrip(), width)


def _laid_out(row: Row, widths: list[int]) -> str:
    return "  ".join(
        f"{cell:>{size}}" if head in _RIGHT else f"{cell:<{size}}"
        for cell, size, head in zip(row, widths, _HEADS, strict=True)
    )


def _model(name: str, model: dict[str, Any]) -> Iterator[tuple[str, Row | str]]:
    """Its generations, one row each, and then what is wrong with it."""
    mark = " " if model["state"] in _AS_ASKED and not model["degraded"] else "!"
    rows = [_serving(model)] if model["serving"] else []
    rows += [_draining(each) for each in model["draining"]]
    if model["loading"]:
        rows.append(_loading(model["loading"]))
    waiting = f"{model['waiting']} waiting" if model["waiting"] else ""
    if not model["serving"]:
        rows.insert(0, (model["state"], "", waiting, "", "", model["path"] or ""))
    for at, row in enumerate(rows):
        yield (mark if at == 0 else " "), ((name if at == 0 else ""), *row)
        if at == 0 and model["serving"]:
            yield from _replicas(model["serving"].get("replicas", ()))
    for wrong in (model["trouble"], model["degraded"]):
        yield from (("!", f"  {line}") for line in (wrong or "").splitlines())


def _serving(model: dict[str, Any]) -> Row:
    generation, state = model["serving"], model["state"]
    queued = model["waiting"] + generation["waiting"]
    requests = f"{generation['requests']}" + (f" ({queued} waiting)" if queued else "")
    path = generation["path"]
    return state, str(generation["generation"]), requests, _pool(generation), mib(generation["pss_bytes"]), path


def _replicas(replicas: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Row | str]]:
    """A row each, where there are several."""
    for each in replicas if len(replicas) > 1 else ():
        requests, memory = str(each["requests"]), mib(each["pss_bytes"])
        mark = " " if each["state"] == "ready" else "!"
        yield mark, ("", f"  {each['state']}", "", requests, "", memory, f"{each['replica']} on {each['device']}")


def _draining(generation: dict[str, Any]) -> Row:
    left_s = generation.get("left_s")
    state = "draining" if left_s is None else f"draining, {_span(left_s)} left"
    requests, memory = str(generation["requests"]), mib(generation["pss_bytes"])
    return state, str(generation["generation"]), requests, _pool(generation), memory, generation["path"]


def _loading(generation: dict[str, Any]) -> Row:
    done, total = generation["loaded_bytes"], generation["total_bytes"]
    share = f" {100 * done // total} % of {mib(total)}" if total else ""
    stage = generation["stage"] or "starting"
    return f"{stage}{share}", str(generation["generation"]), "", "", "", generation["path"]


def _pool(generation: dict[str, Any]) -> str:
    used, total = generation["blocks_used"], generation["blocks_total"]
    return f"{100 * used // total} % of {total:,} blocks" if total else ""


# --- devices --------------------------------------------------------------------------------------


def _devices(devices: dict[str, Any]) -> Iterator[str]:
    """What may be taken of each, and what is: the ledger's bytes, which decide whether a load fits."""
    names = max(len("DEVICE (MiB)"), *(len(name) for name in devices))
    yield f"  {'DEVICE (MiB)':<{names}}{'memory':>10}{'budget':>10}{'held':>10}{'free':>10}"
    for name, device in devices.items():
        budget, held = device.get("budget_bytes", 0), device["held_bytes"]
        numbers = (device.get("memory_bytes", 0), budget, held, budget - held)
        mark = "!" if held > budget > 0 else " "
        yield f"{mark} {name:<{names}}" + "".join(f"{count / (1 << 20):>10,.0f}" for count in numbers)


def _span(seconds: float) -> str:
    """Two units at the most: 34 s, 12 min, 3 h 12 min, 5 d 3 h."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min"
    if whole < 2 * 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:.0f} days" if seconds >= 2 * 86_400 else f"{seconds / 3600:.0f} hours"


def _cut(line: str, width: int) -> str:
    """From the left of a path: its end tells models apart."""
    if len(line) <= width:
        return line
    head, _, path = line.rpartition(" ")
    room = width - len(head) - 4
    return line[: width - 3] + "..." if room < 8 else f"{head} ...{path[-room:]}"
