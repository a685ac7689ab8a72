"""`halogend selftest`: every operator on the devices of this machine, and the links between them."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halogend.cli import arguments
from halogend.cli.kernel_cache import PLACES, kernel_cache

if TYPE_CHECKING:
    from halogend.config.facts import DeviceFacts
    from halogend.control.machine import Machine
    from halogend.control.selftest_record import LinkResult

FAILED = 1
USAGE = 2
BACKENDS = ("auto", "cpu", "reference", "triton")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "selftest",
        help="every operator on this machine's devices against its reference, and the links",
        description="Tries every operator on fresh random inputs against its definition in float64, and measures the"
        " links of accelerators. A link under 70 % of its data sheet is a warning, which plans repeat. Exit 0 all"
        " operators are right, 1 not.",
    )
    parser.add_argument("--device", action="append", default=[], metavar="DEVICE", help="only this one (repeatable)")
    text = "whose operators (default: those of the device; triton on a processor is interpreted, which takes a while)"
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=text)
    parser.add_argument("--seed", type=int, help="of the random inputs (default: another each time)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    text = f"folder of compiled kernels, which accelerators' are taken from and put into (else {PLACES})"
    parser.add_argument("--cache-dir", type=arguments.path, metavar="DIR", help=text)
    text = "folder of the daemon's state, where slow links are noted (default: as for run)"
    parser.add_argument("--state", type=arguments.path, metavar="DIR", help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from halogend.control.machine import probe

    machine = probe()
    try:
        devices = _chosen(machine, args.device)
    except ValueError as error:
        print(f"halogend selftest: {error}", file=sys.stderr)
        return USAGE
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    say: Callable[[str], None] = (lambda _: None) if args.json else print
    kernels = args.cache_dir or kernel_cache(os.environ)
    found = [_tried(device, machine, _Trial(args.backend, seed, kernels), say) for device in devices]
    links = _links(machine, devices)
    ok = all(each["ok"] for each in found)
    if args.json:
        shown = [_shown(each) for each in links]
        print(
            json.dumps({"ok": ok, "seed": seed, "devices": found, "links": shown, "unseen": [*machine.look.troubles]})
        )
    else:
        _tell(machine, links)
    _note(args, links)
    return 0 if ok else FAILED


def _chosen(machine: Machine, names: list[str]) -> list[DeviceFacts]:
    """All that can be used, where none is named. Raises ValueError."""
    from halogend.config.values import device_id

    if not names:
        return [each for each in machine.devices if not each.unusable]
    found = []
    for name in names:
        device = machine.device(device_id(name, auto=False))
        if device is None:
            there = ", ".join(" = ".join((each.id, *each.aliases)) for each in machine.devices)
            raise ValueError(f"the device {name} is not there; this machine has {there}")
        if device.unusable:
            raise ValueError(f"no engine can run on {name}: {device.unusable}")
        found.append(device)
    return found


@dataclass(frozen=True, slots=True)
class _Trial:
    """`kernels` is the folder of compiled ones."""

    backend: str
    seed: int
    kernels: Path | None

    def backend_on(self, device: DeviceFacts) -> str:
        own = "triton" if device.is_accelerator else "cpu"
        return own if self.backend == "auto" else self.backend

    def words(self, device: DeviceFacts, runs_on: str) -> list[str]:
        """For the process that does it."""
        words = ["--backend", self.backend_on(device), "--device", runs_on, "--seed", str(self.seed)]
        return words if self.kernels is None else [*words, "--kernel-cache", str(self.kernels)]


def _tried(device: DeviceFacts, machine: Machine, trial: _Trial, say: Callable[[str], None]) -> dict[str, Any]:
    """JSON-ready. What failed is said at once."""
    backend, runs_on = trial.backend_on(device), machine.runs_on(device.id)
    say(f"{device.id}: backend {backend}" + (f", {device.name}" if device.name else "") + f", seed {trial.seed}")
    began, status = time.monotonic(), 0
    results: list[dict[str, Any]] = []
    for line in _child(trial.words(device, runs_on), machine.environ_of(device.id), backend, runs_on):
        if isinstance(line, int):
            status = line
        else:
            results.append(line["result"])
    for row in _rows(results):
        say(f"  {row}")
    for each in results:
        if not each["ok"]:
            say(f"! {each['operator']} {each['dtype']} {each['case']}: {_wrong(each)}")
    if status or not results:
        say(f"! the self-test ended with exit status {status}, after {len(results)} results")
    ok = status == 0 and bool(results) and all(each["ok"] for each in results)
    took_s = round(time.monotonic() - began, 1)
    say(f"  {len(results)} results in {took_s} s: {'all right' if ok else 'NOT RIGHT'}")
    return {"device": device.id, "backend": backend, "ok": ok, "seconds": took_s, "results": results}


def _child(words: list[str], environ: dict[str, str], backend: str, device: str) -> Iterator[Any]:
    """What it says, and at last its exit status."""
    from halogend.wire.environment import backend_environment

    command = [sys.executable, "-P", "-m", "halogend.engine.selftest", *words]
    whole = {**os.environ, **environ, **backend_environment(backend, device)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=whole) as child:
        try:
            for line in child.stdout or ():
                yield json.loads(line)
        except BaseException:
            child.kill()
            raise
    yield child.returncode


def _rows(results: list[dict[str, Any]]) -> Iterator[str]:
    """The worst of each operator, by how much of what is allowed it took."""
    worst: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in results:
        key = each["operator"], each["kernel"], each["dtype"]
        if key not in worst or _share(each) > _share(worst[key]):
            worst[key] = each
    for (operator, kernel, dtype), each in worst.items():
        yield f"{operator:<18}{kernel:<28}{dtype:<6}{_wrong(each)}"


def _share(result: dict[str, Any]) -> float:
    if result["error"] is None:
        return float("inf")
    return float(result["error"]) / max(float(result["allowed"]), 1e-30)


def _wrong(result: dict[str, Any]) -> str:
    if result["failure"]:
        return str(result["failure"])
    if result["error"] is None:
        return "it is not finite, or of another shape"
    return f"off by {result['error']:.2e} of {result['allowed']:.2e} allowed"


# --- links ------------------------------------------------------------------------------------------


def _links(machine: Machine, devices: list[DeviceFacts]) -> list[LinkResult]:
    """Kind by kind: one runtime drives one vendor's."""
    found = []
    for kind in dict.fromkeys(each.kind for each in devices if each.is_accelerator):
        there = [each for each in devices if each.kind == kind]
        environ: dict[str, str] = {}
        for device in there:
            for name, address in machine.environ_of(device.id).items():
                environ[name] = ",".join(part for part in (environ.get(name, ""), address) if part)
        ids = [each.id for each in there]
        lines = _child(["--links"], environ, "triton", f"{kind}:0")
        found += [_link(machine, ids, line["link"]) for line in lines if not isinstance(line, int)]
    return found


def _link(machine: Machine, ids: list[str], link: dict[str, Any]) -> LinkResult:
    from halogend.control.devices import HOST, named, nominal_bytes_per_s
    from halogend.control.selftest_record import LinkResult

    seen = named(machine.look)
    source, target = (HOST if link[end] == HOST else ids[link[end]] for end in ("from", "to"))
    one, other = (source, target) if source != HOST else (target, HOST)
    nominal = nominal_bytes_per_s(seen[one], seen.get(other)) if one in seen else None
    return LinkResult(
        source=source,
        target=target,
        kind=nominal[0] if nominal else "link",
        bytes_per_s=link["bytes_per_s"],
        nominal_bytes_per_s=nominal[1] if nominal else None,
    )


def _shown(link: LinkResult) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(link), "share": link.share, "ok": not link.is_slow}


def _tell(machine: Machine, links: list[LinkResult]) -> None:
    for link in links:
        share = "" if link.share is None else f" ({link.share:.0%})"
        print(f"{'!' if link.is_slow else ' '} {link.words}{share}")
    if not links:
        print("  no accelerator, no links")
    for trouble in machine.look.troubles:
        print(f"! devices are not seen: {trouble}")


def _note(args: argparse.Namespace, links: list[LinkResult]) -> None:
    """For the plans of a daemon of this user."""
    from halogend.cli.state import state_directory
    from halogend.control.selftest_record import Record, write_record

    folder = state_directory(args.state, os.environ) if links else None
    if folder is None:
        return
    try:
        write_record(folder, Record(at=time.time(), links=tuple(links)))
    except OSError as error:
        print(f"halogend selftest: {folder}: not noted for plans: {error.strerror or error}", file=sys.stderr)
