"""`halogend bench mixed`: short requests beside long ones, first come first served and with lanes.

The same load over HTTP in each arm, one server at a time: our daemon twice, with and without the policies of its
document, and llama.cpp's server. Prints the time to the first token of either kind, what was delivered, and
whether lanes keep what is asked of them: short p99 at most half of first come first served, long p99 at most half
as much again, as many tokens but for a fiftieth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.bench.closed_loop import Ask, Asked, ClosedLoop, Kind, requests
from halogend.engine.bench.driven import kv_bytes
from halogend.engine.bench.http_stream import AnswerError, stream
from halogend.engine.bench.servers import ServerLostError, daemon, llama_cpp

SHORT_TOKENS, LONG_TOKENS = (200, 100), (1800, 512)
FIRST_COME, LANES, PEER = "first come", "lanes", "llama.cpp"
ARMS = (FIRST_COME, LANES, PEER)
BARS = (("short p99", "most", 0.5), ("long p99", "most", 1.5), ("tokens/s", "least", 0.98))
_MODEL = "bench"
_NEVER_MS = 3_600_000


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    kinds = (
        Kind("short", SHORT_TOKENS[0] // args.divide, SHORT_TOKENS[1] // args.divide, 7),
        Kind("long", LONG_TOKENS[0] // args.divide, LONG_TOKENS[1] // args.divide, 3),
    )
    runs: dict[str, list[dict[str, float]]] = {}
    try:
        for number in range(args.runs):
            for arm in args.arms.split(","):
                sys.stderr.write(f"halogend bench mixed: {arm}, run {number + 1} of {args.runs}\n")
                runs.setdefault(arm, []).append(_run_arm(arm, kinds, args, number))
    except (AnswerError, CheckpointError, ServerLostError, OSError) as error:
        sys.stderr.write(f"halogend bench mixed: {error}\n")
        return 1
    except ExceptionGroup as errors:
        sys.stderr.write(f"halogend bench mixed: {errors.exceptions[0]}\n")
        return 1
    report = {"load": _load(kinds, args), "runs": runs, "ratios": _ratios(runs), "met": _met(_ratios(runs))}
    sys.stdout.write((json.dumps(report) if args.json else _table(report)) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench mixed", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--clients", type=int, default=150, help="in a closed loop (default 150)")
    parser.add_argument("--requests", type=int, default=1000, help="short ones measured in each arm (default 1000)")
    parser.add_argument("--divide", type=int, default=8, help="200/100 and 1800/512 tokens by this (default 8)")
    parser.add_argument("--max-batch", type=int, default=160, help="of every arm (default 160)")
    parser.add_argument("--pool-tokens", type=int, default=0, help="KV memory of every arm (default: of a full batch)")
    parser.add_argument("--max-gap-ms", type=int, default=1000, help="of the lanes (default 1000)")
    parser.add_argument("--long-concurrent", type=int, default=1, help="long prompts at once in the lanes (default 1)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {', '.join(ARMS)}; with commas between")
    parser.add_argument("--runs", type=int, default=1, help="of each arm, in turn; medians are judged (default 1)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of llama.cpp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def _run_arm(arm: str, kinds: tuple[Kind, Kind], args: argparse.Namespace, number: int) -> dict[str, float]:
    loop = ClosedLoop(requests(kinds, args.seed + number), args.clients, kinds[0], args.requests)
    with _server(arm, kinds, args) as port:
        return asyncio.run(loop.run(_asking(arm, port))).figures()


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
    if arm == FIRST_COME:
        return {
            "long_prompt": "off",
            "max_gap_ms": 0,
            "prefill_timeout_ms": 0,
            "watermarks": "off",
            "kv_block_pool": {"min_free_ratio": 0},
        }
    threshold = sum(kind.prompt_tokens for kind in kinds) // 2
    return {
        "long_prompt": {"threshold": threshold, "max_concurrent": args.long_concurrent},
        "max_gap_ms": args.max_gap_ms,
    }


def _asking(arm: str, port: int) -> Ask:
    async def ours(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        body = {"model": _MODEL, "prompt": asked.ids, "max_tokens": asked.kind.answer_tokens}
        async for event in stream(port, "/v1/completions", body | {"temperature": 0, "stream": True}):
            if any(choice.get("finish_reason") is None for choice in event.body.get("choices", ())):
                yield event.at_s, 1

    async def theirs(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        body = {"prompt": asked.ids, "n_predict": asked.kind.answer_tokens, "temperature": 0, "cache_prompt": False}
        async for event in stream(port, "/completion", body | {"stream": True}):
            if not event.body.get("stop"):
                yield event.at_s, 1

    return theirs if arm == PEER else ours


def _load(kinds: Sequence[Kind], args: argparse.Namespace) -> str:
    lengths = " and ".join(f"{kind.name} {kind.prompt_tokens}/{kind.answer_tokens}" for kind in kinds)
    return f"{args.clients} clients, {lengths} tokens, 7 : 3, max_batch {args.max_batch}, {args.requests} short an arm"


def _median(runs: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def _ratios(runs: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Lanes beside first come, first served; none without both."""
    if FIRST_COME not in runs or LANES not in runs:
        return {}
    return {name: _median(runs[LANES], name) / _median(runs[FIRST_COME], name) for name, _, _ in BARS}


def _met(ratios: dict[str, float]) -> dict[str, bool]:
    return {
        name: ratios[name] <= bar if side == "most" else ratios[name] >= bar
        for name, side, bar in BARS
        if name in ratios
    }


def _table(report: dict[str, Any]) -> str:
    names = ("short p50", "short p99", "long p50", "long p99", "tokens/s", "requests/s", "seconds")
    lines = [
        f"{report['load']}; times to first token in seconds",
        f"{'':12}" + "".join(f"{name:>12}" for name in names),
    ]
    for arm, runs in report["runs"].items():
        lines.append(f"{arm:12}" + "".join(f"{_median(runs, name):12.2f}" for name in names))
    for name, side, bar in BARS:
        if name in report["ratios"]:
            met = "met" if report["met"][name] else "missed"
            lines.append(f"{name}: lanes / first come {report['ratios'][name]:.3f}, at {side} {bar}: {met}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
