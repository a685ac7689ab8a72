"""One event of the daemon as one line for people."""

from __future__ import annotations

from typing import Any

from halogend.cli.show import clock, hold_line, mib, problem_line, step_facts


def event_line(kind: str, data: dict[str, Any]) -> str:
    """Such as `12:03:09  chat: load ended after 3.10 s, generation 3`; an event of a newer daemon shows its data."""
    known = _WORDS.get(kind)
    words = f"{kind}: {_all(data)}" if known is None else known(data)
    return f"{clock(data['at']).partition(' ')[2]}  {words}"


def _receipt(data: dict[str, Any]) -> str:
    name = f"receipt {data['receipt']}"
    if data["phase"] == "opened":
        return f"{name}: opened by {data['trigger']} ({data['actor']})"
    if data["phase"] == "accepted":
        models = ", ".join(f"{each['action']} {each['model']}" for each in data["models"]) or "no model changes"
        return f"{name}: accepted, revision {data['revision']}: {models}"
    errors = [f"{each['model']}: {each['error']}" for each in data["models"] if each["error"]]
    reasons = [*(problem_line(problem) for problem in data["problems"]), *errors]
    more = data["problem_count"] - len(data["problems"])
    told = f": {'; '.join(reasons)}" + (f"; and {more} more" if more > 0 else "") if reasons else ""
    outcome = str(data["outcome"]).replace("_", " ")
    return f"{name}: {'closed, ' if data['phase'] == 'closed' else ''}{outcome}{told}"


def _step(data: dict[str, Any]) -> str:
    if data["phase"] == "began":
        return f"{data['model']}: {data['name']} began"
    if data["error"]:
        return f"{data['model']}: {data['name']} failed after {data['seconds']:.2f} s: {data['error']}"
    facts = step_facts({key: value for key, value in data.items() if key not in _OF_STEP})
    return f"{data['model']}: {data['name']} ended after {data['seconds']:.2f} s" + (f", {facts}" if facts else "")


def _generation(data: dict[str, Any]) -> str:
    return f"{data['model']}: generation {data['generation']} is {data['state']}"


def _replica(data: dict[str, Any]) -> str:
    return f"{data['model']}: replica {data['replica']} on {data['device']} is {data['state']}"


def _progress(data: dict[str, Any]) -> str:
    name = f"{data['model']}: generation {data['generation']}"
    if not data["total_bytes"]:
        return f"{name} {data['stage'] or 'starting'}"
    share = 100 * data["loaded_bytes"] // data["total_bytes"]
    return f"{name} {data['stage']}, {share} % ({mib(data['loaded_bytes'])} of {mib(data['total_bytes'])})"


def _model(data: dict[str, Any]) -> str:
    wrong = data["trouble"] or data["degraded"]
    return f"{data['model']}: {data['state']}" + (f": {wrong}" if wrong else "")


def _hold(data: dict[str, Any]) -> str:
    return "changes are free" if data["hold"] is None else hold_line(data["hold"])


def _drift(data: dict[str, Any]) -> str:
    drift = data["drift"]
    if drift is None:
        return "the source holds what is active"
    return f"drift: the document of {drift['receipt']} is active, and not what the source holds"


def _state_trouble(data: dict[str, Any]) -> str:
    trouble = data["state_trouble"]
    return "state is kept again" if trouble is None else f"state is not kept: {trouble}"


def _source_trouble(data: dict[str, Any]) -> str:
    trouble = data["source_trouble"]
    return "the source is watched again" if trouble is None else f"the source is looked at now and then: {trouble}"


def _source_unread(data: dict[str, Any]) -> str:
    why = data["source_unread"]
    return "edits are seen again" if why is None else f"no edit is seen: {why}"


def _device(data: dict[str, Any]) -> str:
    if data["state"] == "cool":
        return f"{data['device']} is cool again: its engines rest no more"
    return f"{data['device']} is at {data['temperature_c']:g} C, over {data['limit_c']:g} C: its engines rest now"


def _daemon(data: dict[str, Any]) -> str:
    return f"the daemon is {data['state']}"


def _end(data: dict[str, Any]) -> str:
    return str(data["message"])


def _all(data: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in data.items() if key != "at")


_OF_STEP = frozenset({"at", "receipt", "model", "name", "phase", "seconds", "error"})
_WORDS = {
    "receipt": _receipt,
    "step": _step,
    "generation": _generation,
    "replica": _replica,
    "progress": _progress,
    "model": _model,
    "hold": _hold,
    "drift": _drift,
    "state_trouble": _state_trouble,
    "source_trouble": _source_trouble,
    "source_unread": _source_unread,
    "device": _device,
    "daemon": _daemon,
    "end": _end,
}
