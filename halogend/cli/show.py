"""Receipts, problems and what holds changes back, as lines for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


def receipt_head() -> str:
    who = f"{'TRIGGER':<8} {'REVISION':<13} {'BY':<10}"
    return f"{'ID':>5}  {'ASKED AT':<19}  {'OUTCOME':<17} {who} MODELS"


def receipt_row(receipt: dict[str, Any]) -> str:
    """One line a receipt."""
    at = clock(receipt["asked_at"])
    outcome = receipt["outcome"] or "in progress"
    models = ", ".join(f"{m['model']}: {m['action']}" for m in receipt["models"] if m["action"] != "keep")
    who = f"{receipt['trigger']:<8} {short(receipt['revision']):<13} {receipt['actor']:<10}"
    return f"{receipt['id']:>5}  {at}  {outcome:<17} {who} {models}".rstrip()


def receipt_lines(receipt: dict[str, Any]) -> list[str]:
    """One receipt in full."""
    outcome = receipt["outcome"] or "in progress"
    source = f", {receipt['source']}" if receipt["source"] else ""
    origin = receipt.get("origin")
    source += f", generation {origin['generation']} of {origin['uid']}" if origin else ""
    lines = [f"{receipt['id']}: {outcome}  (trigger {receipt['trigger']}, by {receipt['actor']}{source})"]
    lines.append(f"  revision {short(receipt['previous_revision'])} -> {short(receipt['revision'])}")
    lines += [f"  {problem_line(problem)}" for problem in receipt["problems"]]
    lines += [f"  {_change(change)}" for change in receipt["server_changes"]]
    for model in receipt["models"]:
        lines += _model(model)
    return lines


def hold_line(hold: dict[str, Any]) -> str:
    line = f"changes are held since {clock(hold['since'])} by {hold['by']}; `halogend resume` frees them"
    return f"{line} and applies what was put off" if hold["put_off"] else line


def drift_line(drift: dict[str, Any]) -> str:
    holds = f"holds {drift['source_revision']}" if drift["source_revision"] else "cannot be used"
    return f"drift: this is the document of {drift['receipt']}, the source {holds}; `halogend reload` applies it"


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
        yield f"    {step['name']:<8} {took:>9}  {step_facts(facts)}" + (f"  {step['error']}" if step["error"] else "")


def step_facts(facts: dict[str, Any]) -> str:
    """What a step tells beside its times."""
    return ", ".join(f"{name} {_value(name, value)}" for name, value in facts.items())


def _load(load: dict[str, Any]) -> str:
    again = ", rounded once more" if load["requantised"] else ""
    read, held = mib(load["read_bytes"]), mib(load["held_bytes"])
    return f"load: {read} of {load['stored']} -> {held} in {load['precision']}{again}, {load_time(load)}"


def span(seconds: float) -> str:
    """Such as `0.4 s`, `20 s` or `3 min`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if 0 < seconds < 1 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def load_time(load: dict[str, Any]) -> str:
    """Such as `about 20 s by size`, or with what the loads like it took that it was learned from."""
    about = f"about {span(load['expected_s'])}"
    if not load.get("learned_from"):
        return f"{about} by size"
    least, most = (span(load[key]) for key in ("expected_least_s", "expected_most_s"))
    taken = least if least == most else f"{least} to {most}"
    count = load["learned_from"]
    return f"{about} ({taken} the last {count} times)" if count > 1 else f"{about} (as the last time)"


def _change(change: dict[str, Any]) -> str:
    return f"{change['field']}: {change['old']} -> {change['new']}  ({change['class']})"


def problem_line(problem: dict[str, Any]) -> str:
    place = ":".join(str(problem[key]) for key in ("file", "line", "column") if problem[key])
    text = f"{place}: {problem['code']}: {problem['message']}" if place else f"{problem['code']}: {problem['message']}"
    return f"{text} ({problem['hint']})" if problem["hint"] else text


def _value(name: str, value: Any) -> str:
    return mib(value) if name.endswith("_bytes") else str(value)


def mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"


def short(revision: str | None) -> str:
    return "none" if revision is None else revision[:12]


def clock(epoch_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_s))
