"""A runner made of Python lists, and the naive answer to compare with.

Its KV memory stores after which tokens, and for whose scope, each position was computed, a table for itself, so
that a block lost, given back too early, shared where it does not fit or written out of order shows as wrong content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, SchedLimits, SessionClass
from halogend.sched.request import ANYBODY, Caller, End, Request
from halogend.sched.scheduler import Scheduler
from halogend.sched.step import StepItem, StepPlan, StepResult

VOCAB = 97
CLASSES = (SessionClass("high", 10), SessionClass("middle", 1))
EVERYTHING = KvLayout((None,))


def next_token(history: list[int]) -> int:
    """What the model says after `history`: depends on every token and on their order."""
    state = 7
    for token in history:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCAB


def naive_generate(request: Request) -> list[int]:
    history = list(request.prompt)
    generated: list[int] = []
    while len(generated) < request.max_tokens:
        generated.append(next_token(history))
        history.append(generated[-1])
        if generated[-1] in request.stop_ids:
            break
    return generated


def make_limits(**changes: object) -> SchedLimits:
    values: dict[str, object] = {
        "max_batch": 4,
        "max_queue": 512,
        "queue_timeout_s": 0.0,
        "request_timeout_s": 0.0,
        "prefill_chunk_tokens": 0,
        "step_tokens": 64,
        "eviction": EvictionPolicy("lru", CLASSES),
    }
    return SchedLimits(**(values | changes))  # type: ignore[arg-type]  # of whatever kind the field is


class ListRunner:
    """Executes plans in the order they were given, as a device's one stream would. Of what a row sees, every
    `stride`-th position is compared, others in each step."""

    def __init__(self, layout: KvLayout = EVERYTHING, stride: int = 1) -> None:
        self._windows = layout.windows
        self._stride = stride
        self._steps = 0
        # (block, offset) -> (table, position, state)
        self._memory: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._histories: dict[int, list[int]] = {}  # the prompt and the tokens computed so far, by request
        self._states: dict[int, list[int]] = {}  # the scope, then each token with all before it
        self._slots: dict[int, int] = {}
        self._given: deque[StepPlan] = deque()

    def begin(self, request: Request) -> None:
        """Before its first step."""
        self._histories[request.id] = []
        self._states[request.id] = [hash(request.caller.scope)]
        self._append(request.id, 0, request.prompt)

    def move(self, moves: Mapping[int, int], limit: int) -> None:
        """Copies blocks, then forgets everything at or above `limit`."""
        self._copy(moves.items())
        self._memory = {place: held for place, held in self._memory.items() if place[0] < limit}

    def submit(self, plan: StepPlan) -> None:
        self._given.append(plan)

    @property
    def given(self) -> tuple[StepPlan, ...]:
        """Not executed yet, oldest first."""
        return tuple(self._given)

    def finish(self, failing: frozenset[int] = frozenset()) -> StepResult:
        plan = self._given.popleft()
        self._steps += 1
        assert len({item.id for item in plan.items}) == len(plan.items)
        assert len({item.slot for item in plan.items}) == len(plan.items)
        self._copy(plan.copies)
        sampled: list[tuple[int, int]] = []
        failed: list[tuple[int, str]] = []
        for item in plan.items:
            token = self._compute(item)
            if item.id in failing:
                failed.append((item.id, "numeric_error"))
            elif item.samples:
                sampled.append((item.id, token))
        for item in plan.items:  # written at the end of the step, as a sampler would
            for request_id, token in sampled:
                if item.id == request_id:
                    self._slots[item.slot] = token
        return StepResult(plan.number, tuple(sampled), tuple(failed))

    def _compute(self, item: StepItem) -> int:
        assert item.count > 0
        late = [self._slots.get(item.slot, 0)] if item.from_slot else []  # 0: its last step failed
        assert item.start <= len(self._histories[item.id]), "a position was left out"
        self._append(item.id, item.start, (*item.tokens, *late))
        for table, window in enumerate(self._windows):
            self._write(item, table)
            self._read(item, table, window)
        return next_token(self._histories[item.id][: item.start + item.count])

    def _append(self, request_id: int, start: int, tokens: tuple[int, ...]) -> None:
        history, states = self._histories[request_id], self._states[request_id]
        if history[start : start + len(tokens)] == list(tokens):
            return  # computed once more: what lies behind it is known still
        history[start:] = tokens
        del states[start + 1 :]
        for token in tokens:
            states.append(hash((states[-1], token)))

    def _copy(self, copies: Iterable[tuple[int, int]]) -> None:
        for old, new in copies:
            for offset in range(BLOCK_TOKENS):
                self._memory.pop((new, offset), None)
                if (found := self._memory.get((old, offset))) is not None:
                    self._memory[new, offset] = found

    def _write(self, item: StepItem, table: int) -> None:
        blocks = item.blocks[table]
        for position in range(item.start, item.start + item.count):
            assert blocks[position // BLOCK_TOKENS], "a block that was given back is written"
            place = (blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS)
            self._memory[place] = (table, position, self._states[item.id][position + 1])

    def _read(self, item: StepItem, table: int, window: int | None) -> None:
        """All that any row of the item sees."""
        first = 0 if window is None else max(0, item.start - window + 1)
        blocks, states = item.blocks[table], self._states[item.id]
        for position in range(first + self._steps % self._stride, item.start + item.count, self._stride):
            place = (blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS)
            expected = (table, position, states[position + 1])
            assert self._memory.get(place) == expected, "a block holds what somebody else wrote"


def quick(plan: StepPlan) -> float:
    """What a step takes unless a test says otherwise: a tenth of a millisecond a token, too little for any limit."""
    return 0.001 + 0.0001 * sum(item.count for item in plan.items)


@dataclass
class Outcome:
    request: Request
    tokens: list[int]
    end: End | None = None
    aborted: bool = False


class World:
    """A scheduler, its runner, and what became of every request. `depth` steps run ahead."""

    def __init__(
        self, limits: SchedLimits, *, blocks: int, depth: int = 0, layout: KvLayout = EVERYTHING, stride: int = 1
    ) -> None:
        self.layout = layout
        self.pool = BlockPool(blocks, blocks)
        self.scheduler = Scheduler(limits, self.pool, layout)
        self.runner = ListRunner(layout, stride)
        self.depth = depth
        self.now = 0.0
        self.in_flight = 0
        self.outcomes: dict[int, Outcome] = {}
        self.first_seen: list[int] = []
        self.failing: frozenset[int] = frozenset()
        self.step_s: Callable[[StepPlan], float] = quick  # what a step is said to take
        self.plans: list[StepPlan] = []

    def add(
        self,
        prompt_tokens: int,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        caller: Caller = ANYBODY,
    ) -> str | None:
        """Adds a request with the next id; the code of the refusal if it was refused."""
        number = len(self.outcomes)
        prompt = tuple((number * 13 + i * 7) % VOCAB for i in range(prompt_tokens))
        return self.ask(prompt, max_tokens, stop_ids, caller)

    def ask(
        self,
        prompt: tuple[int, ...],
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        caller: Caller = ANYBODY,
    ) -> str | None:
        """As `add`, with this prompt."""
        request = Request(len(self.outcomes), prompt, max_tokens, stop_ids, caller)
        refusal = self.scheduler.add(request, self.now)
        if refusal is not None:
            return refusal.code
        self.runner.begin(request)
        self.outcomes[request.id] = Outcome(request, [])
        return None

    @property
    def alive(self) -> list[int]:
        return [i for i, outcome in self.outcomes.items() if outcome.end is None and not outcome.aborted]

    def abort(self, request_id: int) -> None:
        self.scheduler.abort(request_id)
        self.outcomes[request_id].aborted = True

    def end(self, ended: tuple[End, ...]) -> None:
        for end in ended:
            outcome = self.outcomes[end.id]
            assert outcome.end is None, "a request ended twice"
            assert not outcome.aborted, "an aborted request ended"
            outcome.end = end

    def resize(self, limit: int) -> dict[int, int]:
        """The blocks that moved."""
        resized = self.scheduler.resize(limit)
        self.runner.move(resized.moves, limit)
        self.end(resized.ended)
        return dict(resized.moves)

    def step(self) -> bool:
        """Plans a step and takes in the results that are due; False when nothing moved."""
        plan = self.scheduler.schedule(self.now)
        if plan is not None:
            self.plans.append(plan)
            self.first_seen += [item.id for item in plan.items if item.id not in self.first_seen]
            self.runner.submit(plan)
            self.in_flight += 1
            if self.depth == 0:
                self.check_bounds()
        due = self.in_flight > (self.depth if plan is not None else 0)
        if due:
            self.apply()
        self.scheduler.audit()
        self.check_tables()
        return plan is not None or due

    def apply(self) -> None:
        plan = self.runner.given[0]
        seconds = self.step_s(plan)
        self.now += seconds
        events = self.scheduler.apply(replace(self.runner.finish(self.failing), seconds=seconds))
        self.in_flight -= 1
        for request_id, token in events.sampled:
            assert self.outcomes[request_id].end is None
            assert not self.outcomes[request_id].aborted
            self.outcomes[request_id].tokens.append(token)
        self.end(events.ended)

    def check_tables(self) -> None:
        """Every running request holds, of each table, the blocks from the one its next result's window
        begins in up to its last planned position: not one less or more."""
        items = [item for plan in self.runner.given for item in plan.items]
        for sequence in self.scheduler._running:
            applied = min((i.start for i in items if i.blocks is sequence.blocks), default=sequence.computed)
            for table, window in zip(sequence.blocks, self.layout.windows, strict=True):
                behind = 0 if window is None else max(0, applied - window + 1) // BLOCK_TOKENS
                assert [bool(block) for block in table] == [
                    index >= behind for index in range(-(-sequence.computed // BLOCK_TOKENS))
                ]

    def check_bounds(self) -> None:
        """Nobody holds more than was said when it was taken, a step at a time."""
        for sequence in self.scheduler._running:
            assert sequence.held <= self.scheduler._blocks_at_most(sequence.request)

    def drain(self, most_steps: int = 10_000) -> None:
        """Runs until nothing is left; fails when that takes too long or a result is wrong."""
        for _ in range(most_steps):
            if not self.step():
                break
        else:
            raise AssertionError(f"still busy after {most_steps} steps: {self.scheduler.stats}")
        assert self.alive == [], "requests were left behind"
        assert not self.scheduler.has_requests
        assert self.pool.referenced_count == self.scheduler.reuse.blocks_pinned
        self.check()

    def check(self) -> None:
        """Whatever came out so far is what the naive model says."""
        for outcome in self.outcomes.values():
            expected = naive_generate(outcome.request)
            if outcome.end is not None and outcome.end.reason != "error":
                assert outcome.tokens == expected
                assert outcome.end.reason == ("stop" if expected[-1] in outcome.request.stop_ids else "length")
            else:
                assert outcome.tokens == expected[: len(outcome.tokens)]
