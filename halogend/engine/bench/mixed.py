"""`halogend bench mixed`: short requests beside long ones, first come first served and with lanes.

The same load over HTTP in each arm, one server at a time: our daemon with lanes; first come, first served with steps
as large and as long (only the policy differs); first come, first served with small steps; llama.cpp's server. Twice:
saturated, where each client asks again at once, and near capacity, where clients think in between. Prints
the time to the first token of either kind, the longest time between tokens, what was delivered, and whether lanes
keep what is asked of them beside first come, first served: short p99 at most half, long p99 at most half as much
again, as many tokens but for a fiftieth. Exits with 1 where they do not. Arms are run in turn, several times, and the
answers of all of an arm's runs are judged together: a machine that is slower for some minutes is so for every arm.
With --beside all arms run at the same time, each on cores of its own, and so in the same weather.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.bench.closed_loop import Ask, Asked, ClosedLoop, Kind, Measured, requests
from halogend.engine.bench.driven import kv_bytes
from halogend.engine.bench.http_stream import AnswerError, stream
from halogend.engine.bench.servers import ServerLostError, daemon, llama_cpp

SHORT_TOKENS, LONG_TOKENS = (200, 100), (1800, 512)
FIRST_COME, SMALL_STEPS, LANES, PEER = "first come", "small steps", "lanes", "llama.cpp"
ARMS = (FIRST_COME, SMALL_STEPS, LANES, PEER)
SATURATED, NEAR = "saturated", "near capacity"
LOADS = {"both": (SATURATED, NEAR), "saturated": (SATURATED,), "near": (NEAR,)}
THINKING = 0.9  # of the clients, at capacity
BARS = (("short p99", "most", 0.5), ("long p99", "most", 1.5), ("tokens/s", "least", 0.98))
_MODEL = "bench"
_NEVER_MS = 3_600_000
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
_TIMES = ("short p50", "short p99", "long p50", "long p99", "mean wait", "gap p99", "gap")
_COLUMNS = (*_TIMES, "short answer", "long answer", "tokens/s", "requests/s", "seconds")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(arguments)
    kinds = (
        Kind("short", SHORT_TOKENS[0] // args.divide, SHORT_TOKENS[1] // args.divide, 7),
        Kind("long", LONG_TOKENS[0] // args.divide, LONG_TOKENS[1] // args.divide, 3),
    )
    if args.think is None and LOADS[args.loads] == (NEAR,):
        parser.error("--loads near needs --think: how long clients think follows from the saturated load")
    if args.beside and len(os.sched_getaffinity(0)) < len(args.arms.split(",")):
        parser.error(f"--beside needs a core for each of {args.arms}: name fewer with --arms")
    try:
        loads = _run(kinds, args)
    except (AnswerError, CheckpointError, ServerLostError, OSError) as error:
        sys.stderr.write(f"halogend bench mixed: {error}\n")
        return 1
    except ExceptionGroup as errors:
        sys.stderr.write(f"halogend bench mixed: {errors.exceptions[0]}\n")
        return 1
    report = {"load": _load(kinds, args), "loads": loads}
    sys.stdout.write((json.dumps(report) if args.json else _table(report)) + "\n")
    return 0 if all(all(load["met"].values()) for load in loads.values()) else 1


def _run(kinds: tuple[Kind, Kind], args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The figures of each load. Clients think, near capacity, so long that of a saturated server's requests a
    second a fifth of them would make all."""
    loads: dict[str, dict[str, Any]] = {}
    for load in LOADS[args.loads]:
        think_s = 0.0
        if load == NEAR:
            think_s = args.think if args.think is not None else _think_s(loads[SATURATED]["arms"], args.clients)
        measured: dict[str, list[Measured]] = {}
        for number in range(args.runs):
            sys.stderr.write(f"halogend bench mixed: {load}, run {number + 1} of {args.runs}\n")
            run = _run_beside if args.beside else _run_in_turn
            for arm, each in run(kinds, args, (number, think_s)):
                measured.setdefault(arm, []).append(each)
        arms = {arm: Measured.of_all(runs).figures() for arm, runs in measured.items()}
        runs = {arm: [each.figures() for each in runs] for arm, runs in measured.items()}
        ratios = _ratios(arms)
        loads[load] = {"think_s": think_s, "arms": arms, "runs": runs, "ratios": ratios, "met": _met(ratios)}
    return loads


def _think_s(arms: dict[str, dict[str, float]], clients: int) -> float:
    """Of first come, first served; of any arm where it was not run."""
    arm = FIRST_COME if FIRST_COME in arms else next(iter(arms))
    return THINKING * clients / arms[arm]["requests/s"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench mixed", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--clients", type=int, default=150, help="in a closed loop (default 150)")
    parser.add_argument("--loads", choices=LOADS, default="both", help="(default both)")
    thinking = f"{THINKING} x clients / requests a second of first come, saturated"
    parser.add_argument("--think", type=float, help=f"seconds before the next request, near capacity ({thinking})")
    measured = "short ones measured in each arm, in all its runs together (default 1000)"
    parser.add_argument("--requests", type=int, default=1000, help=measured)
    parser.add_argument("--divide", type=int, default=8, help="200/100 and 1800/512 tokens by this (default 8)")
    parser.add_argument("--max-batch", type=int, default=160, help="of every arm (default 160)")
    parser.add_argument("--pool-tokens", type=int, default=0, help="KV memory of every arm (default: of a full batch)")
    parser.add_argument("--max-gap-ms", type=int, default=250, help="of all arms but small steps (default 250)")
    parser.add_argument("--long-concurrent", type=int, default=1, help="long prompts at once in the lanes (default 1)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {', '.join(ARMS)}; with commas between")
    parser.add_argument("--runs", type=int, default=3, help="of each arm, in turn (default 3)")
    parser.add_argument("--beside", action="store_true", help="all arms at the same time, on cores of their own")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of llama.cpp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


_Run = tuple[int, float]
"""Its number, and how many seconds clients think."""


def _run_in_turn(kinds: tuple[Kind, Kind], args: argparse.Namespace, run: _Run) -> Iterator[tuple[str, Measured]]:
    for arm in args.arms.split(","):
        yield arm, _run_arm(arm, kinds, args, run)


def _run_beside(kinds: tuple[Kind, Kind], args: argparse.Namespace, run: _Run) -> Iterator[tuple[str, Measured]]:
    """Each arm with its load on an equal part of the cores, and in the next run on another's."""
    arms, cores = args.arms.split(","), sorted(os.sched_getaffinity(0))
    count = len(cores) // len(arms)
    with ProcessPoolExecutor(len(arms), multiprocessing.get_context("spawn")) as pool:
        futures = []
        for place, arm in enumerate(arms):
            first = (place + run[0]) % len(arms) * count
            futures.append(pool.submit(_run_on, cores[first : first + count], arm, kinds, args, run))
        yield from zip(arms, (future.result() for future in futures), strict=True)


def _run_on(cores: Sequence[int], arm: str, kinds: tuple[Kind, Kind], args: argparse.Namespace, run: _Run) -> Measured:
    os.sched_setaffinity(0, cores)
    return _run_arm(arm, kinds, args, run)


def _run_arm(arm: str, kinds: tuple[Kind, Kind], args: argparse.Namespace, run: _Run) -> Measured:
    number, think_s = run
    least = math.ceil(args.requests / args.runs)
    loop = ClosedLoop(requests(kinds, args.seed + number), args.clients, kinds[0], least, think_s)
    with _server(arm, kinds, args) as port:
        return asyncio.run(loop.run(_asking(arm, port)))


@contextmanager
def _server(arm: str, kinds: Sequence[Kind], args: argparse.Namespace) -> Iterator[int]:
    longest = max(kind.prompt_tokens + kind.answer_tokens for kind in kinds)
    if arm == PEER:
        with llama_cpp(args.model, args.max_batch, longest, args.threads) as port:
            yield port
        return
    pool_tokens = args.pool_tokens or args.max_batch * (longest + 16)
    model = {
        "name": _MODEL,
        "model": os.path.abspath(args.model),  # noqa: PTH100 (a symbolic link keeps its name)
        "max_batch": args.max_batch,
        "max_queue": 4 * args.clients,
        "queue_timeout_ms": _NEVER_MS,
        "max_model_len": longest + 16,
        "kv_cache_bytes": kv_bytes(args.model, pool_tokens),
        **_policies(arm, kinds, args),
    }
    with daemon(model) as port:
        yield port


def _policies(arm: str, kinds: Sequence[Kind], args: argparse.Namespace) -> dict[str, Any]:
    """Without a bound of their time steps are small, with one they are as large for first come as for lanes."""
    if arm == LANES:
        threshold = sum(kind.prompt_tokens for kind in kinds) // 2
        return {
            "long_prompt": {"threshold": threshold, "max_concurrent": args.long_concurrent},
            "max_gap_ms": args.max_gap_ms,
        }
    return {
        "long_prompt": "off",
        "max_gap_ms": args.max_gap_ms if arm == FIRST_COME else 0,
        "prefill_timeout_ms": 0,
        "watermarks": "off",
        "kv_block_pool": {"min_free_ratio": 0},
    }


def _asking(arm: str, port: int) -> Ask:
    async def ours(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        body = {"model": _MODEL, "prompt": asked.ids, "max_tokens": asked.kind.answer_tokens, "temperature": 0}
        told = 0
        async for event in stream(port, "/v1/completions", body | _STREAMED):
            if usage := event.body.get("usage"):
                yield event.at_s, usage["completion_tokens"] - told
            elif any(choice.get("finish_reason") is None for choice in event.body.get("choices", ())):
                told += 1
                yield event.at_s, 1

    async def theirs(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        body = {"prompt": asked.ids, "n_predict": asked.kind.answer_tokens, "temperature": 0, "cache_prompt": False}
        told = 0
        async for event in stream(port, "/completion", body | {"stream": True}):
            if event.body.get("stop"):
                yield event.at_s, event.body.get("tokens_predicted", told) - told
            else:
                told += 1
                yield event.at_s, 1

    return theirs if arm == PEER else ours


def _load(kinds: Sequence[Kind], args: argparse.Namespace) -> str:
    lengths = " and ".join(f"{kind.name} {kind.prompt_tokens}/{kind.answer_tokens}" for kind in kinds)
    return (
        f"{args.clients} clients, {lengths} tokens, 7 : 3, max_batch {args.max_batch},"
        f" {args.requests} short an arm in {args.runs} runs{', beside each other' if args.beside else ''}"
    )


def _ratios(arms: dict[str, dict[str, float]]) -> dict[str, float]:
    """Lanes beside first come, first served; none without both."""
    if FIRST_COME not in arms or LANES not in arms:
        return {}
    return {name: arms[LANES][name] / arms[FIRST_COME][name] for name, _, _ in BARS}


def _met(ratios: dict[str, float]) -> dict[str, bool]:
    return {
        name: ratios[name] <= bar if side == "most" else ratios[name] >= bar
        for name, side, bar in BARS
        if name in ratios
    }


def _table(report: dict[str, Any]) -> str:
    lines = [f"{report['load']}; times to first token and between tokens in seconds"]
    for load, held in report["loads"].items():
        lines.append(f"{load}: clients think for {held['think_s']:.1f} s")
        lines.append(f"{'':12}" + "".join(f"{name:>13}" for name in _COLUMNS))
        for arm, figures in held["arms"].items():
            lines.append(f"{arm:12}" + "".join(f"{figures[name]:13.2f}" for name in _COLUMNS))
        for name, side, bar in BARS:
            if name in held["ratios"]:
                met = "met" if held["met"][name] else "missed"
                lines.append(f"{load}, {name}: lanes / first come {held['ratios'][name]:.3f}, at {side} {bar}: {met}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
