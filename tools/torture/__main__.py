"""`python -m torture`: options, the report, the exit status (0 passed, 1 failed, 2 a wrong command line)."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path

from torture.evidence import Evidence
from torture.session import Options, torture
from torture.verdict import Line, failed, verdict

FULL_S, FULL_GENERATIONS, FULL_SWAPS = 1200.0, 50, 6
FEWEST = 3


def main() -> int:
    args = _arguments()
    seconds = args.minutes * 60 if args.minutes else args.seconds
    with tempfile.TemporaryDirectory(prefix="halogen-torture-") as folder:
        options = Options(
            folder=Path(folder),
            seconds=seconds,
            generations=_count(args.generations, FULL_GENERATIONS * seconds / FULL_S),
            swaps=_count(args.swaps, FULL_SWAPS * seconds / FULL_S),
            real=tuple(args.models),
            precision=args.precision,
            seed=args.seed,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
        try:
            evidence = asyncio.run(_interruptible(options))
        finally:
            if args.log:
                _keep_log(options.folder / "daemon.log", args.log)
    lines = verdict(evidence)
    is_failed = failed(lines, strict=args.strict)
    print("\n".join(_text(lines, evidence, is_failed=is_failed)))
    if args.json:
        args.json.write_text(json.dumps(_view(lines, evidence, is_failed=is_failed), indent=1) + "\n")
    return int(is_failed)


def _keep_log(log: Path, into: Path) -> None:
    """A run may have ended before there was one: why it did is what is told, and this beside it."""
    try:
        into.write_bytes(log.read_bytes())
    except OSError as error:
        print(f"the daemon's log is not kept: {error}", file=sys.stderr, flush=True)


def _count(stated: int | None, share: float) -> int:
    return max(FEWEST, round(share)) if stated is None else stated


async def _interruptible(options: Options) -> Evidence:
    """SIGTERM ends it as Ctrl-C does: with the daemon's end."""
    run = asyncio.ensure_future(torture(options))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, run.cancel)
    return await run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=FULL_S, help=f"how long (default {FULL_S:g})")
    parser.add_argument("--minutes", type=float, help="the same, for soaking")
    parser.add_argument("--models", nargs=2, type=Path, metavar="FILE", help="the two real models; else tiny ones only")
    precision = "of the real models (default auto, as served; fp32: every answer is known to the letter)"
    parser.add_argument("--precision", default="auto", help=precision)
    parser.add_argument("--generations", type=int, help="of the tiny models (default by the time: 50 in 20 minutes)")
    parser.add_argument("--swaps", type=int, help="of the real models (default by the time: 6 in 20 minutes)")
    parser.add_argument("--seed", type=int, default=1, help="of when requests come (default 1)")
    parser.add_argument("--strict", action="store_true", help="timing is judged too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep the daemon's log there")
    args = parser.parse_args()
    args.models = [path.absolute() for path in args.models or ()]
    if absent := [str(path) for path in args.models if not path.is_file()]:
        parser.error(f"there is no {' and no '.join(absent)}")
    return args


def _text(lines: list[Line], evidence: Evidence, *, is_failed: bool) -> list[str]:
    cores = evidence.machine
    shared = "shares them" if cores["load_cores"] == cores["daemon_cores"] else f"is on {cores['load_cores']}"
    rates = "; ".join(f"{kind} {full:.1f}/s, asked {rate:.1f}/s" for kind, (full, rate) in evidence.rates.items())
    marks = {True: "PASS", False: "FAIL", None: "  - "}
    head = [f"daemon on cores {cores['daemon_cores']}, the load {shared}; capacity {rates}"]
    rows = [f"{marks[line.ok]}  {line.name:<24} {line.text}" for line in lines]
    return [*head, *rows, "FAILED" if is_failed else "PASSED"]


def _view(lines: list[Line], evidence: Evidence, *, is_failed: bool) -> dict[str, object]:
    return {
        "passed": not is_failed,
        "machine": dict(evidence.machine),
        "rates": {kind: {"capacity": full, "asked": rate} for kind, (full, rate) in evidence.rates.items()},
        "lines": [
            {"name": line.name, "kind": line.kind, "ok": line.ok, "text": line.text, **line.figures} for line in lines
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
