"""`halogend bench gap`: how long running streams wait for their next token beside very long prompts.

Chat streams run without a pause, as many as are asked for; beside them one very long prompt after the other is
computed. Before: chunks as large as a step's budget. After: chunks sized so that steps stay under max_gap_ms.
The streams' gaps are measured while a long prompt is being computed, at the engine's own channel. The bar is
max_gap_ms plus one step of the streams alone (the median, measured before the first long prompt comes).
Beside it stands what the gaps are without the time for which the engine was ready and had no processor:
where that is much less, the machine had something else to do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from halogend.engine.bench.driven import GREEDY, DrivenEngine, EngineLostError, Prompts, make_spec
from halogend.engine.bench.judged import Report, judge, parser, patient_limits
from halogend.engine.bench.quantiles import quantile
from halogend.wire.policy import EnginePolicy
from halogend.wire.requests import Generate, StepOutput
from halogend.wire.specs import EngineLimits

_STREAM_PROMPT_TOKENS = 64
_STREAM_ANSWER_TOKENS = 256
_LONG_ANSWER_TOKENS = 4
_ALONE_TOKENS = 32  # of every stream, before the first long prompt comes
_FIRST_LONG_ID = 1 << 20
_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds. `alone` is a step of the streams by themselves, `largest`, `p99` and `median` are of their gaps
    beside a long prompt, of which each took `prompt` to its first token; `own` is the largest without the time for
    which a thread of the engine waited for a processor; `count` is how many gaps there were."""

    alone: float
    median: float
    p99: float
    largest: float
    own: float
    prompt: float
    count: int


class Streams:
    """`count` streams, each followed by another when it ends, and long prompts beside them."""

    def __init__(self, engine: DrivenEngine, prompts: Prompts, count: int) -> None:
        self.alone: list[float] = []
        self.beside: list[float] = []
        self.own: list[float] = []
        self.tokens = 0
        self.long_since: float | None = None
        self.long_took: list[float] = []
        self._engine = engine
        self._prompts = prompts
        self.count = count
        self._next_id = 0
        self._last: dict[int, float] = {}
        self._waited = engine.waited_s()

    def begin(self) -> None:
        for _ in range(self.count):
            self._another()

    def send_long(self, number: int, tokens: int) -> None:
        self.long_since = time.monotonic()
        request_id = _FIRST_LONG_ID + number
        ids = self._prompts.make(request_id, tokens)
        self._engine.submit(_generate(request_id, ids, _LONG_ANSWER_TOKENS))

    def turn(self) -> None:
        """What came, and what follows from it. Raises EngineLostError for an end that is a failure."""
        for now, frame in self._engine.turn(_TICK_S):
            self._take(now, frame, self._lost())

    def _lost(self) -> float:
        """The longest that a thread of the engine was kept from a processor since the last frame."""
        before, self._waited = self._waited, self._engine.waited_s()
        return max((waited - before.get(thread, 0.0) for thread, waited in self._waited.items()), default=0.0)

    def _take(self, now: float, frame: StepOutput, lost: float) -> None:
        for sampled in frame.sampled:
            if sampled.id >= _FIRST_LONG_ID:
                if self.long_since is not None:
                    self.long_took.append(now - self.long_since)
                    self.long_since = None
                continue
            if (before := self._last.get(sampled.id)) is not None:
                if self.long_since is None:
                    self.alone.append(now - before)
                else:
                    self.beside.append(now - before)
                    self.own.append(max(0.0, now - before - lost))
            self._last[sampled.id] = now
            self.tokens += 1
        for end in frame.ended:
            if end.failure is not None:
                raise EngineLostError(f"request {end.id} failed: {end.failure.message}")
            if end.id < _FIRST_LONG_ID:
                del self._last[end.id]
                self._another()

    def _another(self) -> None:
        ids = self._prompts.make(self._next_id, _STREAM_PROMPT_TOKENS)
        self._engine.submit(_generate(self._next_id, ids, _STREAM_ANSWER_TOKENS))
        self._next_id += 1


def _generate(request_id: int, ids: tuple[int, ...], max_tokens: int) -> Generate:
    return Generate(id=request_id, prompt_ids=ids, max_tokens=max_tokens, sampling=GREEDY, stop_ids=())


def measure(load: Streams, tokens: int, prompts: int) -> Gaps:
    """Of a load that has not begun. Raises EngineLostError."""
    load.begin()
    _until(load, lambda: load.tokens >= load.count * _ALONE_TOKENS)
    alone = statistics.median(load.alone)
    for number in range(prompts):
        load.send_long(number, tokens)
        _until(load, lambda: load.long_since is None)
    return Gaps(
        alone=alone,
        median=statistics.median(load.beside),
        p99=quantile(load.beside, 0.99),
        largest=max(load.beside),
        own=max(load.own),
        prompt=statistics.mean(load.long_took),
        count=len(load.beside),
    )


def _until(load: Streams, done: Callable[[], bool]) -> None:
    while not done():
        load.turn()


def main(arguments: Sequence[str] | None = None) -> int:
    return judge("gap", _parser().parse_args(arguments), _run, _table)


def _parser() -> argparse.ArgumentParser:
    made = parser("gap", __doc__)
    made.add_argument("--tokens", type=int, default=30_000, help="of each long prompt (default 30000)")
    made.add_argument("--prompts", type=int, default=3, help="long ones, one after the other (default 3)")
    made.add_argument("--streams", type=int, default=16, help="that run beside them (default 16)")
    made.add_argument("--max-gap-ms", type=int, default=250, help="as in the document (default 250)")
    return made


def _run(args: argparse.Namespace) -> Report:
    arms = {}
    prompts = Prompts(args.model)
    for name, max_gap_s in (("before", 0.0), ("after", args.max_gap_ms / 1000)):
        sys.stderr.write(f"halogend bench gap: {name}\n")
        limits = _limits(args, max_gap_s)
        with DrivenEngine(make_spec(args.model, limits, args.threads)) as engine:
            load = Streams(engine, prompts, args.streams)
            arms[name] = measure(load, args.tokens, args.prompts)
    after = arms["after"]
    allowed = args.max_gap_ms / 1000 + after.alone
    return {
        "model": args.model,
        "tokens": args.tokens,
        "streams": args.streams,
        "max_gap_s": args.max_gap_ms / 1000,
        "arms": {name: asdict(gaps) for name, gaps in arms.items()},
        "allowed_s": allowed,
        "met": after.largest <= allowed,
    }


def _limits(args: argparse.Namespace, max_gap_s: float) -> EngineLimits:
    longest = args.tokens + _LONG_ANSWER_TOKENS
    everything = longest + args.streams * (_STREAM_PROMPT_TOKENS + _STREAM_ANSWER_TOKENS)
    batch = args.streams + 1, 2 * args.streams
    return patient_limits(args.model, longest, 2 * everything, batch, EnginePolicy(max_gap_s=max_gap_s))


def _table(report: Report) -> str:
    heads = ("alone", "median", "p99", "largest", "own", "prompt")
    lines = [
        f"{report['model']}: {report['streams']} streams beside prompts of {report['tokens']} tokens; seconds",
        f"{'':8}" + "".join(f"{head:>10}" for head in heads) + f"{'gaps':>10}",
    ]
    for name, gaps in report["arms"].items():
        lines.append(f"{name:8}" + "".join(f"{gaps[head]:10.3f}" for head in heads) + f"{gaps['count']:10}")
    met = "met" if report["met"] else "missed"
    after = report["arms"]["after"]
    bar = f"bar: largest gap {after['largest']:.3f} s <= {report['allowed_s']:.3f} s: {met}"
    return "\n".join([*lines, f"{bar} ({after['own']:.3f} s without what the engine waited for a processor)"])


if __name__ == "__main__":
    sys.exit(main())
