"""Receipts and status as lines for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


def receipt_row(receipt: dict[str, Any]) -> str:
    """One line a receipt."""
    at = _clock(receipt["asked_at"])
    outcome = receipt["outcome"] or "in progress"
    models = ", ".join(f"{m['model']}: {m['action']}" for m in receipt["models"] if m["action"] != "keep")
    who = f"{receipt['trigger']:<8} {_short(receipt['revision']):<13} {receipt['actor']:<10}"
    return f"{receipt['id']:>5}  {at}  {outcome:<17} {who} {models}".rstrip()


def receipt_lines(receipt: dict[str, Any]) -> list[str]:
    """One receipt in full."""
    outcome = receipt["outcome"] or "in progress"
    source = f", {receipt['source']}" if receipt["source"] else ""
    lines = [f"{receipt['id']}: {outcome}  (trigger {receipt['trigger']}, by {receipt['actor']}{source})"]
    lines.append(f"  revision {_short(receipt['previous_revision'])} -> {_short(receipt['revision'])}")
    lines += [f"  {problem_line(problem)}" for problem in receipt["problems"]]
    lines += [f"  {_change(change)}" for change in receipt["server_changes"]]
    for model in receipt["models"]:
        lines += _model(model)
    return lines


def status_lines(status: dict[str, Any]) -> list[str]:
    revision = status["revision"]
    state = "settled" if status["settled"] else "not settled"
    lines = [
        f"halogend {status['version']}, up {status['uptime_s']:.0f} s, source {status['source']}",
        f"revision desired {_short(revision['desired'])}, active {_short(revision['active'])}: {state}",
    ]
    lines += _steering(status)
    lines += _access(status)
    for name, model in status["models"].items():
        lines.append(f"  {name}: {model['state']}  {model['path'] or ''}")
        lines += [f"    {key}: {model[key]}" for key in ("trouble", "degraded") if model[key]]
        lines += [_generation(role, model[role]) for role in ("serving", "loading") if model[role]]
        lines += [_generation("draining", each) for each in model["draining"]]
    last = status["last_receipt"]
    if last is not None and last["outcome"] not in {"applied", "unchanged"}:
        lines += ["last edit:", *receipt_lines(last)]
    return lines


def _access(status: dict[str, Any]) -> Iterator[str]:
    """Where it listens and who may come in."""
    for name, listener in status["listeners"].items():
        tls = listener["tls"]
        until = f", TLS until {tls['not_after'][:10]} ({_days(tls['expires_in_s'])})" if tls else ""
        yield f"{name} on {listener['address']}{until}"
    for key in status["keys"]:
        previous = key["previous_valid_s"]
        old = f", the one before for {previous:.0f} s more" if previous else ""
        yield f"  key {key['name']} ({', '.join(key['scopes'])}) {key['fingerprint']}{old}"


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:.0f} days" if seconds >= 2 * 86_400 else f"{seconds / 3600:.0f} hours"


def hold_line(hold: dict[str, Any]) -> str:
    line = f"changes are held since {_clock(hold['since'])} by {hold['by']}; `halogend resume` frees them"
    return f"{line} and applies what was put off" if hold["put_off"] else line


def _steering(status: dict[str, Any]) -> Iterator[str]:
    """What keeps the daemon from being what its source says."""
    watch = status.get("source_watch")
    if watch and watch["reason"]:
        yield f"the source is looked at now and then: {watch['reason']}"
    if status["hold"]:
        yield hold_line(status["hold"])
    if status["drift"]:
        drift = status["drift"]
        holds = f"holds {drift['source_revision']}" if drift["source_revision"] else "cannot be used"
        yield f"drift: this is the document of {drift['receipt']}, the source {holds}; `halogend reload` applies it"
    if status["state"] and status["state"]["trouble"]:
        yield f"state is not kept in {status['state']['directory']}: {status['state']['trouble']}"


def _model(model: dict[str, Any]) -> Iterator[str]:
    yield f"  {model['model']}: {model['action']}, {model['outcome'] or 'in progress'}"
    if model["error"]:
        yield f"    {model['error']}"
    for change in model["changes"]:
        yield f"    {_change(change)}"
    if model["load"]:
        yield f"    {_load(model['load'])}"
    for step in model["steps"]:
        took = "running" if step["seconds"] is None else f"{step['seconds']:.2f} s"
        facts = {k: v for k, v in step.items() if k not in {"name", "began_at", "seconds", "error"}}
        told = ", ".join(f"{name} {_value(name, value)}" for name, value in facts.items())
        yield f"    {step['name']:<8} {took:>9}  {told}" + (f"  {step['error']}" if step["error"] else "")


def _load(load: dict[str, Any]) -> str:
    again = ", rounded once more" if load["requantised"] else ""
    read, held = _mib(load["read_bytes"]), _mib(load["held_bytes"])
    return f"load: {read} of {load['stored']} -> {held} in {load['precision']}{again}, about {load['expected_s']:.0f} s"


def _generation(role: str, generation: dict[str, Any]) -> str:
    text = f"    {role} generation {generation['generation']}: {generation['requests']} requests"
    if role == "loading":
        return f"{text}, {generation['stage']}, {_mib(generation['loaded_bytes'])} of {_mib(generation['total_bytes'])}"
    blocks = f"{generation['blocks_used']} of {generation['blocks_total']} blocks"
    queue = f"{generation['running']} running, {generation['waiting']} waiting"
    return f"{text} ({queue}), {blocks}, {_mib(generation['pss_bytes'])}"


def _change(change: dict[str, Any]) -> str:
    return f"{change['field']}: {change['old']} -> {change['new']}  ({change['class']})"


def problem_line(problem: dict[str, Any]) -> str:
    place = ":".join(str(problem[key]) for key in ("file", "line", "column") if problem[key])
    text = f"{place}: {problem['code']}: {problem['message']}" if place else f"{problem['code']}: {problem['message']}"
    return f"{text} ({problem['hint']})" if problem["hint"] else text


def _value(name: str, value: Any) -> str:
    return _mib(value) if name.endswith("_bytes") else str(value)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"


def _short(revision: str | None) -> str:
    return "none" if revision is None else revision[:12]


def _clock(epoch_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_s))
