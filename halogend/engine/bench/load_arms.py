"""`halogend bench load --arms`: one model in several formats, and llama.cpp, from nothing to a first token.

Every arm is a whole engine process, as a swap in a living daemon finds one (it stands by: it has imported what loads
need, and said Hello), or as the daemon starts a new one (`--start new`, or both), over files that are in the page cache
(warm) or were dropped from it (cold, as mincore(2) sees it), and takes memory that was used before. The arms take turns
within a round, each round in another order, and medians over the rounds are shown; the report says what each time is
of. A v2 file is loaded a second time
beside a first one that serves, for what the two take together; and ranks read their own ranges of it, without an
engine. Figures are printed, never judged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.v2 import shards
from halogend.checkpoint.v2.reader import open_v2
from halogend.engine.bench.children import ChildFailedError
from halogend.engine.bench.free_memory import UsedMemory
from halogend.engine.bench.load_ranks import read_ranks
from halogend.engine.bench.load_start import WINDOWS, engine_spec, memory_of, running, start_ours, start_peer
from halogend.engine.bench.page_cache import cached_share, drop, read_through
from halogend.engine.bench.report import Progress, columns, say, size
from halogend.engine.bench.synthetic import FORMATS, V2_FORMATS, NoSpaceError, make
from halogend.obs.processor import numbers

CACHES = ("cold", "warm")
STARTS = ("spare", "new")
PEER = "llama.cpp"
SYNTHETIC = ("v2-int4", "q4_k", "awq", "gptq", "v2-bf16", "bf16")
_RANKS = (1, 2, 3, 4)
_MIB = 1 << 20
_BESIDE_BYTES = 1 << 30  # that an engine takes, at the most, beside a file and what it makes of it
_SECONDS = ("load_s", "warmup_s", "first_token_s")
_TITLES = ("held as", "cache", "in cache", "load s", "warm-up s", "token s", "PSS MiB", "load avg")
_WINDOW_TITLES = {"load_s": "load s", "first_token_s": "token s"}
_STARTED = {"spare": "engines that stand by", "new": "new engines", "both": "engines that stand by and new ones"}


@dataclass(frozen=True, slots=True)
class Arm:
    """`precision` is what the weights are held in; llama.cpp holds what the file has. `start` is one of STARTS, of
    ours."""

    name: str
    path: Path
    files: tuple[Path, ...]
    precision: str
    start: str = ""

    @property
    def is_peer(self) -> bool:
        return self.precision == PEER


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(arguments)
    if bool(args.paths) == (args.synthetic is not None):
        parser.error("give either models' PATHs or --synthetic SIZE")
    try:
        report = _measure(list(_arms(args)), args)
    except (CheckpointError, ChildFailedError, NoSpaceError, OSError) as error:
        say(f"halogend bench load: {error}", to_stderr=True)
        return 1
    say(json.dumps(report) if args.json else _table(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench load --arms", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="an arm each; llama.cpp beside each .gguf")
    parser.add_argument("--synthetic", type=size, metavar="SIZE", help="models of random weights, as 4GiB or 300MiB")
    parser.add_argument("--formats", type=formats, default=SYNTHETIC, help="of the synthetic models, with commas")
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="where they are made and kept")
    parser.add_argument("--precision", help="of every arm (default: as a daemon would)")
    parser.add_argument("--threads", type=int, default=0, help="that load (default: as an engine chooses)")
    parser.add_argument("--cache", choices=(*CACHES, "both"), default="both", help="state of the page cache")
    parser.add_argument(
        "--start", choices=(*STARTS, "both"), default="spare", help="engines that stand by (default), new ones, or both"
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--json", action="store_true", help="print the figures of every run as JSON")
    return parser


def _arms(args: argparse.Namespace) -> Iterator[Arm]:
    paths = args.paths or [_made(kind, args) for kind in args.formats]
    for path in paths:
        checkpoint = open_checkpoint(path)
        precision = args.precision or held_as(checkpoint.quantisation)
        name = f"{path.name} ({checkpoint.quantisation})"
        for start in STARTS if args.start == "both" else (args.start,):
            told = f"{name}, {start}" if args.start == "both" else name
            yield Arm(told, path, checkpoint.files, precision, start)
        if checkpoint.format == "gguf" and args.paths:
            yield Arm(f"{path.name}, {PEER}", path, checkpoint.files, PEER)


def held_as(quantisation: str) -> str:
    """In what weights are held that are stored so: in as many bits, where there is such a form; else in the processor's
    own numbers."""
    stored = quantisation.lower()
    if "int4" in stored or stored.startswith(("q4", "iq4")):
        return "int4"
    return "int8" if "int8" in stored or stored.startswith("q8") else numbers()


def formats(text: str) -> tuple[str, ...]:
    """Of an argument such as v2-int4,awq."""
    known = (*FORMATS, *V2_FORMATS)
    if unknown := [kind for kind in text.split(",") if kind not in known]:
        raise argparse.ArgumentTypeError(f"no format {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(text.split(","))


def _made(kind: str, args: argparse.Namespace) -> Path:
    """The synthetic model, made now or before. Those of four bits are one model, of the size of its v2 file."""
    progress = Progress(f"making {kind} weights")
    like = "v2-int4" if kind in ("q4_k", "awq", "gptq") else "v2-bf16" if kind == "bf16" else kind
    path = make(kind, args.synthetic, args.dir, progress.report, like=like)
    progress.end()
    return path


def _measure(arms: Sequence[Arm], args: argparse.Namespace) -> dict[str, Any]:
    caches = CACHES if args.cache == "both" else (args.cache,)
    runs = [
        _run(arm, cache, args.threads) | {"round": number}
        for number in range(args.runs)
        for cache in caches
        for arm in _from(arms, number)
    ]
    once = {arm.path: arm for arm in reversed(arms) if not arm.is_peer}
    v2 = [arm for arm in reversed(once.values()) if open_checkpoint(arm.path).format == "v2"]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "rounds": args.runs,
        "start": args.start,
        "windows": dict(WINDOWS),
        "runs": runs,
        "medians": [_medians(arm, cache, runs) for cache in caches for arm in arms],
        "pairs": [_pair(arm, args.threads) for arm in v2],
        "ranks": [_ranks(arm, caches, args.runs) for arm in v2],
    }


def _from(arms: Sequence[Arm], number: int) -> Sequence[Arm]:
    """All of them, beginning with another one each round, and every other time backwards: none always comes after the
    same one, which leaves it what it has used."""
    first = number % len(arms)
    forwards = (*arms[first:], *arms[:first])
    return forwards if number % 2 == 0 else (forwards[0], *forwards[:0:-1])


def _run(arm: Arm, cache: str, threads: int) -> dict[str, Any]:
    share = _prepare(arm, cache)
    used = UsedMemory(_BESIDE_BYTES + 2 * sum(file.stat().st_size for file in arm.files))
    if arm.is_peer:
        used.release()
        figures = start_peer(str(arm.path))
    else:
        ahead = arm.start == "spare"
        figures = start_ours(str(arm.path), arm.precision, threads, ahead=ahead, on_hello=used.release)
    load_average = os.getloadavg()[0]
    return {"arm": arm.name, "cache": cache, "cached_share": share, "load_average": load_average} | asdict(figures)


def _prepare(arm: Arm, cache: str) -> float:
    """The share of the arm's files that the page cache then holds."""
    for file in arm.files:
        read_through(file) if cache == "warm" else drop(file)
    return cached_share(arm.files)


def _medians(arm: Arm, cache: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = [run for run in runs if (run["arm"], run["cache"]) == (arm.name, cache)]
    found: dict[str, Any] = {"arm": arm.name, "precision": arm.precision, "cache": cache}
    found |= {name: statistics.median(run[name] for run in own) for name in (*_SECONDS, "pss_bytes", "cached_share")}
    return found | {"load_average": statistics.median(run["load_average"] for run in own)}


def _pair(arm: Arm, threads: int) -> dict[str, Any]:
    """Two engines of one file at once: PSS of the first alone, and of both."""
    spec = engine_spec(str(arm.path), arm.precision, threads)
    with running(spec) as (first, alone), running(spec) as (second, _):
        both = sum(memory_of(pid)["Pss"] for pid in (first, second))
    return {"arm": arm.name, "alone_bytes": alone.pss_bytes, "both_bytes": both, "ratio": both / alone.pss_bytes}


def _ranks(arm: Arm, caches: Sequence[str], rounds: int) -> dict[str, Any]:
    """Ranks that read at once; `read_s` is the last one's, a median over the rounds."""
    sizes = [of for of in _RANKS if of in shards.sizes(open_v2(arm.path).entries.values())]
    rows = []
    for cache in caches:
        for of in sizes:
            rounds_of = []
            for _ in range(rounds):
                _prepare(arm, cache)
                rounds_of.append(read_ranks(arm.path, of))
            ranks = rounds_of[-1]
            rows.append(
                {
                    "cache": cache,
                    "of": of,
                    "read_s": statistics.median(max(rank.read_s for rank in ranks) for ranks in rounds_of),
                    "most_wanted_bytes": max(rank.wanted_bytes for rank in ranks),
                    "most_asked_bytes": max(rank.asked_bytes for rank in ranks),
                    "disk_bytes": sum(rank.disk_bytes for rank in ranks),
                }
            )
    return {"arm": arm.name, "rows": rows}


def _table(report: dict[str, Any]) -> str:
    how = f"medians of {report['rounds']} rounds, {report['cores']} cores, {_STARTED[report['start']]}"
    lines = [how, *(f"{_WINDOW_TITLES[name]}: {window}" for name, window in report["windows"].items())]
    wide: Callable[[str], str] = "{:<52}".format
    lines.append(wide("arm") + columns(_TITLES))
    for row in report["medians"]:
        times = (f"{row[name]:.2f}" for name in _SECONDS)
        cells = (row["precision"], row["cache"], f"{row['cached_share']:.0%}", *times)
        sizes = (f"{row['pss_bytes'] / _MIB:.0f}", f"{row['load_average']:.1f}")
        lines.append(wide(row["arm"]) + columns((*cells, *sizes)))
    for pair in report["pairs"]:
        alone, both = pair["alone_bytes"] / _MIB, pair["both_bytes"] / _MIB
        lines.append(f"{pair['arm']}: PSS {alone:.0f} MiB alone, {both:.0f} MiB of two: {pair['ratio']:.2f}")
    for group in report["ranks"]:
        lines.append(
            wide(f"{group['arm']}: ranks") + columns(("cache", "read s", "wanted MiB", "asked MiB", "disk MiB"))
        )
        for row in group["rows"]:
            counts = (f"{row[name] / _MIB:.0f}" for name in ("most_wanted_bytes", "most_asked_bytes", "disk_bytes"))
            lines.append(wide(f"    {row['of']}") + columns((row["cache"], f"{row['read_s']:.2f}", *counts)))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
