"""A plan as a table for people: what happens to each model, and the bytes of each device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from halogend.cli.show import hold_line, load_time, problem_line, span

_HEADLINES = {
    "unchanged": "nothing to do",
    "changes": "this would change",
    "rejected": "this would be rejected",
}
_USES = (
    ("weights", "weights_bytes"),
    ("mapped", "mapped_bytes"),
    ("working", "working_bytes"),
    ("kv", "kv_bytes"),
    ("total", "total_bytes"),
)
_LEAST_WIDTH = 40
_LANDINGS = {"spare": "the spare device {}", "idle": "{}, which is idle"}


def plan_lines(plan: dict[str, Any], width: int = 100) -> list[str]:
    """No line is longer than `width` columns, but for problems and warnings, which are never cut."""
    lines = [_headline(plan), *(f"  {problem_line(each)}" for each in plan["problems"])]
    lines += [f"  warning: {each}" for each in plan.get("warnings", ())]
    if plan["hold"]:
        lines.append(f"  {hold_line(plan['hold'])}")
    if plan["models"]:
        lines += ["", *_models(plan)]
    lines += [f"  {_change(each)}" for each in plan["server_changes"]]
    for device in plan["devices"]:
        lines += ["", *_device(device)]
    uncut = 1 + len(plan["problems"]) + len(plan.get("warnings", ()))
    return [*lines[:uncut], *(_cut(line, max(_LEAST_WIDTH, width)) for line in lines[uncut:])]


def _headline(plan: dict[str, Any]) -> str:
    current, planned = (plan["revision"][key] or "none" for key in ("current", "planned"))
    revisions = current if current == planned else f"{current} -> {planned}"
    if plan["revision"]["planned"] is None:
        revisions = f"{current} stays"
    return f"{plan['source']}: {_HEADLINES[plan['outcome']]}  (revision {revisions})"


def _models(plan: dict[str, Any]) -> Iterator[str]:
    names = max(len("MODEL"), *(len(each["model"]) for each in plan["models"]))
    yield f"  {'MODEL':<{names}}  ACTION"
    for model in plan["models"]:
        first, *rest = list(_details(model)) or [""]
        yield f"  {model['model']:<{names}}  {model['action']:<8}  {first}".rstrip()
        yield from (f"  {'':<{names}}  {'':<8}  {line}" for line in rest)
    if plan["together"]:
        yield "  all at one moment, when the last of them is ready, or none of them"
    loads = [each["load"]["expected_s"] for each in plan["models"] if each["load"]]
    if len(loads) > 1:
        yield f"  {_loads(loads, plan['loads_at_once'])}"


def _loads(expected_s: list[float], at_once: int) -> str:
    """Side by side they share the cores, so that together they take hardly less."""
    how = "one after the other" if at_once == 1 else f"up to {at_once} at once"
    return f"{len(expected_s)} loads, {how}: about {span(sum(expected_s))}"


def _details(model: dict[str, Any]) -> Iterator[str]:
    yield from _way(model)
    yield from (_change(each) for each in model["changes"])
    if model["load"]:
        yield _load(model["load"])
    if model["at_start"]:
        kv, most = model["at_start"]["kv_bytes"], (model["after"] or model["at_start"])["kv_bytes"]
        yield f"KV pool {_mib(kv)} MiB" + (f", later {_mib(most)}" if most != kv else "")
    if model["probation_s"]:
        limit = span(model["probation_s"])
        yield f"on probation for {limit}: the old one stands by and keeps its memory until then"
    if model["drain"]:
        yield _drain(model["drain"])


def _way(model: dict[str, Any]) -> Iterator[str]:
    where = _LANDINGS.get(model["landing"], "").format(model["device"])
    if model["strategy"] == "overlap" and where:
        yield f"overlap on {where}: the old one serves until it is loaded"
    elif model["strategy"] == "overlap":
        yield "overlap: the new one is loaded beside the old one, which serves on until then"
    elif model["strategy"] == "replace":
        yield "replace: the old one ends first; requests wait until the new one serves"
    elif model["strategy"] == "take_back":
        yield "taken back: what drains is this very generation; it serves again at once, and nothing is loaded"
    elif model["strategy"] == "shrink":
        first = "the old pool gives memory back" if model["shrink"] else "there is room without that"
        yield f"shrink: {first}; then the new one loads beside it"
    elif model["strategy"] == "rolling":
        yield "rolling: device by device the old replica ends and the new one loads"
    elif where:
        yield f"on {where}"
    if model["shrink"]:
        sizes = (f"{_mib(model['shrink'][key])} MiB" for key in ("from_bytes", "to_bytes"))
        yield f"old KV pool {' -> '.join(sizes)} meanwhile"


def _load(load: dict[str, Any]) -> str:
    again = ", rounded once more" if load["requantised"] else ""
    read, held = f"{_mib(load['read_bytes'])} MiB of {load['stored']}", f"{_mib(load['held_bytes'])} MiB"
    return f"load {read} -> {held} in {load['precision']}{again}{_mapped(load)}, {load_time(load)}"


def _mapped(load: dict[str, Any]) -> str:
    """What lies as the kernels want it is used where it lies; all else is packed once."""
    if not load["mapped_bytes"]:
        return ""
    rest = f", {_mib(load['repacked_bytes'])} MiB packed anew" if load["repacked_bytes"] else ""
    return f", {_mib(load['mapped_bytes'])} MiB of it mapped{rest}"


def _drain(drain: dict[str, Any]) -> str:
    text = f"drain up to {span(drain['limit_s'])}: {_count(drain['running'], 'request')} running"
    return text + (f", {drain['may_outlive']} may outlive it and be cut" if drain["may_outlive"] else "")


def _device(device: dict[str, Any]) -> Iterator[str]:
    now, peak, after = device["now"], device["peak"], device["after"]
    yield f"  {device['device'] + ' (MiB)':<14}{'now':>10}{'at most':>12}{'after':>12}"
    for label, key in _USES:
        if key == "mapped_bytes" and not any(each[key] for each in (now, peak, after)):
            continue
        during = f"   while {peak['during']} loads" if key == "total_bytes" and peak["during"] else ""
        yield f"    {label:<12}{_mib(now[key]):>10}{_mib(peak[key]):>12}{_mib(after[key]):>12}{during}"
    if not device["memory_bytes"]:
        yield "    no device of the document: what is here is on its way out"
        return
    over = peak["total_bytes"] - device["budget_bytes"]
    budget = (
        f"    of {_mib(device['budget_bytes'])}: {_mib(device['memory_bytes'])} less {_mib(device['reserve_bytes'])}"
    )
    yield f"{budget} reserve and {_mib(device['foreign_bytes'])} used by others"
    if over > 0:
        yield f"    {_mib(over)} over it at the most"


def _change(change: dict[str, Any]) -> str:
    old, new = (_value(change["field"], change[key]) for key in ("old", "new"))
    return f"{change['field']}: {old} -> {new}  ({change['class']})"


def _value(field: str, value: Any) -> str:
    """Sizes as the rest of the table has them; true and false as a document has them."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and field.endswith(("bytes", ".memory", ".reserve")):
        return f"{_mib(value)} MiB"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(f'{field}.{key}', inner)}" for key, inner in value.items() if key != "id")
    if isinstance(value, list):
        return ", ".join(_value(field, each) for each in value) or "none"
    return str(value) or '""'


def _count(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."
