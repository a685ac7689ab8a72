"""The status as a table that a person on call reads at a glance; a line that wants an eye begins with `!`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from halogend.cli.show import drift_line, hold_line, mib, receipt_lines, short

_LEAST_WIDTH = 60
_HEADS = ("MODEL", "STATE", "GEN", "REQUESTS", "KV POOL", "MEMORY", "DEVICE", "PATH")
_DEVICE = _HEADS.index("DEVICE")
_RIGHT = frozenset({"GEN", "MEMORY"})
_FINE = frozenset({"applied", "unchanged", None})
_AT_WORK = frozenset({"ready", "draining"})
_AS_ASKED = frozenset({"serving", "removed"})
Row = tuple[str, ...]


def status_lines(status: dict[str, Any], width: int = 120) -> list[str]:
    """No line of a table is longer than `width` columns; what is wrong is never cut."""
    lines = [_headline(status), *_revision(status), *_steering(status), *_lingering(status), *_access(status)]
    if status["models"]:
        lines += ["", *_models(status, max(_LEAST_WIDTH, width))]
    known = {name: each for name, each in status.get("devices", {}).items() if "memory_bytes" in each}
    if known:
        lines += ["", *_devices(known)]
    lines += _accelerators(status.get("devices", {}))
    lines += [f"! devices are not seen: {why}" for why in status.get("devices_not_seen", ())]
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
    if watch and watch.get("unread"):
        yield f"! no edit is seen: {watch['unread']}"
    if status["hold"]:
        yield f"! {hold_line(status['hold'])}"
    if status["drift"]:
        yield f"! {drift_line(status['drift'])}"
    if status["state"] and status["state"]["trouble"]:
        yield f"! state is not kept in {status['state']['directory']}: {status['state']['trouble']}"


def _lingering(status: dict[str, Any]) -> Iterator[str]:
    """Processes that were killed and hold their memory still."""
    for each in status.get("lingering", ()):
        pids = ", ".join(f"{role} {pid}" for role, pid in each["pids"].items())
        killed = f"{each['replica']} was killed {_span(each['for_s'])} ago"
        yield f"! {killed} and does not end ({pids}): its memory is not back"


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


def _models(status: dict[str, Any], width: int) -> Iterator[str]:
    """Where there is one device, nobody asks which."""
    rows: list[tuple[str, Row | str]] = [(" ", _HEADS)]
    devices = {held: each["device"] for held, each in status["memory"].items()}
    for name, model in status["models"].items():
        rows += _model(name, model, devices if len(status.get("devices", ())) > 1 else {})
    cells = [row for _, row in rows if isinstance(row, tuple)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(_HEADS))]
    hidden = () if any(row[_DEVICE] for row in cells[1:]) else (_DEVICE,)
    for mark, row in rows:
        text = row if isinstance(row, str) else _laid_out(row, widths, hidden)
        yield f"{mark} {text}" if isinstance(row, str) else _cut(f"{mark} {text}".rstrip(), width)


def _laid_out(row: Row, widths: list[int], hidden: tuple[int, ...]) -> str:
    return "  ".join(
        f"{cell:>{widths[at]}}" if _HEADS[at] in _RIGHT else f"{cell:<{widths[at]}}"
        for at, cell in enumerate(row)
        if at not in hidden
    )


def _model(name: str, model: dict[str, Any], devices: dict[str, str]) -> Iterator[tuple[str, Row | str]]:
    """Its generations, one row each, and then what is wrong with it."""
    is_fine = model["state"] in _AS_ASKED and not model["degraded"]
    rows = [(" ", row) for row in _generations(model)]
    if not model["serving"]:
        waiting = f"{model['waiting']} waiting" if model["waiting"] else ""
        rows.insert(0, (" ", (model["state"], "", waiting, "", "", model["path"] or "")))
    else:
        rows[1:1] = _replicas(model["serving"].get("replicas", ()))
    for at, (mark, (*cells, path)) in enumerate(rows):
        device = devices.get(f"{name}#{cells[1]}", "")
        yield ("!" if at == 0 and not is_fine else mark), ((name if at == 0 else ""), *cells, device, path)
    for wrong in (model["trouble"], model["degraded"]):
        yield from (("!", f"  {line}") for line in (wrong or "").splitlines())


def _generations(model: dict[str, Any]) -> Iterator[Row]:
    """What serves first."""
    if model["serving"]:
        yield _serving(model)
    if parked := model.get("parked"):
        yield _row("stands by", parked)
    for each in model["draining"]:
        left_s = each.get("left_s")
        yield _row("draining" if left_s is None else f"draining, {_span(left_s)} left", each)
    if loading := model["loading"]:
        done, total = loading["loaded_bytes"], loading["total_bytes"]
        share = f" {100 * done // total} % of {mib(total)}" if total else ""
        yield f"{loading['stage'] or 'starting'}{share}", str(loading["generation"]), "", "", "", loading["path"]


def _serving(model: dict[str, Any]) -> Row:
    """A probation tells how long still, and what it counted."""
    generation, state, probation = model["serving"], model["state"], model.get("probation")
    if probation:
        counted = f"{probation['errors']} of {probation['requests']} failed"
        state = f"{state}, on probation {_span(probation['left_s'])} more ({counted})"
    return _row(state, generation, model["waiting"] + generation["waiting"])


def _row(state: str, generation: dict[str, Any], waiting: int = 0) -> Row:
    requests = f"{generation['requests']}" + (f" ({waiting} waiting)" if waiting else "")
    number, memory = str(generation["generation"]), mib(generation["held_bytes"])
    return state, number, requests, _pool(generation), memory, generation["path"]


def _replicas(replicas: Sequence[dict[str, Any]]) -> list[tuple[str, Row]]:
    """A row each, where there are several."""
    return [
        (
            " " if each["state"] in _AT_WORK else "!",
            (
                f"  {each['state']}",
                "",
                str(each["requests"]),
                "",
                mib(each["held_bytes"]),
                f"{each['replica']} on {each['device']}",
            ),
        )
        for each in (replicas if len(replicas) > 1 else ())
    ]


def _pool(generation: dict[str, Any]) -> str:
    used, total = generation["blocks_used"], generation["blocks_total"]
    return f"{100 * used // total} % of {total:,} blocks" if total else ""


# --- devices --------------------------------------------------------------------------------------


def _devices(devices: dict[str, Any]) -> Iterator[str]:
    """What may be taken of each, and what is: the ledger's bytes, which decide whether a load fits."""
    names = max(len("DEVICE (MiB)"), *(len(name) for name in devices))
    yield f"  {'DEVICE (MiB)':<{names}}{'memory':>10}{'budget':>10}{'held':>10}{'free':>10}"
    for name, device in devices.items():
        budget, held = device["budget_bytes"], device["held_bytes"]
        numbers = (device["memory_bytes"], budget, held, budget - held)
        mark = "!" if held > budget > 0 else " "
        yield f"{mark} {name:<{names}}" + "".join(f"{count / (1 << 20):>10,.0f}" for count in numbers)


def _accelerators(devices: dict[str, Any]) -> Iterator[str]:
    """What each is and how it does; what keeps it from serving at full speed begins with `!`."""
    for name, device in devices.items():
        facts = device.get("accelerator")
        if facts is None:
            continue
        ways = ", ".join(f"{each['kind']} {each['detail']}" for each in facts["links"])
        parts = [" = ".join(facts["names"]) + f": {facts['name']}, {facts['arch']}", _heat(facts), ways]
        yield f"  {'; '.join(part for part in parts if part)}"
        if facts["unusable"]:
            yield f"! no engine can run on {name}: {facts['unusable']}"
        elif not facts["is_told"]:
            yield f"! nothing is told of {name} now"
        elif facts["limit_c"] is not None and facts["temperature_c"] is None:
            yield f"! {name} tells no temperature: its limit of {facts['limit_c']:g} C cannot be kept"
        if facts["rest"]:
            limit = f"{facts['limit_c']:g} C"
            yield f"! {name} is held at {limit}: its engines rest {100 * facts['rest']:.0f} % of the time"


def _heat(facts: dict[str, Any]) -> str:
    limit = "no limit" if facts["limit_c"] is None else f"limit {facts['limit_c']:g} C"
    parts = [
        "" if facts["temperature_c"] is None else f"{facts['temperature_c']:g} C ({limit})",
        "" if facts["clock_mhz"] is None else f"{facts['clock_mhz']:,} MHz",
        "" if facts["power_w"] is None else f"{facts['power_w']:.0f} W",
    ]
    return ", ".join(part for part in parts if part)


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
