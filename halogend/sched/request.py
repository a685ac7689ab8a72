"""A request as the scheduler sees it: what was asked, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halogend.sched.chain import Chain


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `scope` is whose cached blocks may be shared with it; `key` and `weight` say whose share of
    the machine it takes and how large that is beside others of the same priority; `klass` names the class
    that says its priority and pins its blocks, and `session` the conversation that it goes on with. Raises
    ValueError for a weight that is no share."""

    scope: bytes = b""
    key: str = ""
    weight: float = 1.0
    klass: str = ""
    session: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"a weight must be above 0, not {self.weight}")


ANYBODY = Caller()


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. Ends at any of `stop_ids` or after `max_tokens`. Raises ValueError for an
    empty prompt or no token to generate."""

    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    caller: Caller = ANYBODY

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError(f"request {self.id} has an empty prompt")
        if self.max_tokens < 1:
            raise ValueError(f"request {self.id} asks for {self.max_tokens} tokens")

    @property
    def positions_at_most(self) -> int:
        """Computed if it runs to `max_tokens`: the last token is sampled, never computed."""
        return len(self.prompt) + self.max_tokens - 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not taken: a stable `code` and a sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class End:
    """The one end of a request that was taken. `reason` is stop, length or error; an error has a
    stable `code`."""

    id: int
    reason: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """What one step brought, tokens before ends: (id, token) pairs, then who is done. `reused` says of
    requests that were admitted for the first time how many positions of theirs were there already."""

    sampled: tuple[tuple[int, int], ...]
    ended: tuple[End, ...]
    reused: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Resized:
    """What a new pool limit brought: blocks to copy before the memory behind it goes back (old place to
    new; no new place is an old one), and who ended."""

    moves: Mapping[int, int]
    ended: tuple[End, ...]


@dataclass(slots=True, eq=False)
class Sequence:
    """A taken request's progress. Only the scheduler writes it.

        tokens    p p p p p p g g g ?       p prompt, g generated, ? sampled in a step not applied yet
                  `computed` -----^         positions before it have their KV written or on the way

    `pending` counts the `?`; `ahead` is what a step may compute next. `slot` is -1 while waiting.
    `blocks` has a list for each table of the layout, none while waiting; 0 is a block given back.
    `held` counts those that are not; `most_blocks` is the most it comes to, a step at a time. `shared` of them are
    whole prefixes' that others held already: they come back to nobody when it ends. Of one that waits they are
    those that it would find. `chain` names its full blocks.

    `priority` is what its class has just now. `rank` is its place among those of its priority that wait,
    from the fair share's `tag`; it was charged `charged_tokens` of that share. `passed` counts who was
    admitted since it heads its line. `long` is its lane; it is judged by the tokens `to_compute`: while it
    waits all that are known, from its entry on those that were not cached then. `prefill_s` is the step time
    that its prompt has taken.
    """

    request: Request
    order: int
    arrived_s: float
    tokens: list[int]
    priority: int = 0
    computed: int = 0
    pending: int = 0
    slot: int = -1
    blocks: list[list[int]] = field(default_factory=list)
    held: int = 0
    most_blocks: int = 0
    shared: int = 0
    prompt_counted: int = 0
    admitted: bool = False
    ended: bool = False
    tag: float = 0.0
    charged_tokens: float = 0.0
    rank: tuple[bool, float, int] = (True, 0.0, 0)
    passed: int = 0
    long: bool = False
    to_compute: int = 0
    prefill_s: float = 0.0
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.chain = Chain(self.request.caller.scope, self.tokens)

    @property
    def own(self) -> int:
        """Blocks that it holds and nobody held before it."""
        return self.held - self.shared

    @property
    def generated(self) -> int:
        """Tokens sampled so far, those not applied yet included."""
        return len(self.tokens) + self.pending - len(self.request.prompt)

    @property
    def ahead(self) -> int:
        """Positions to compute until the next sample; 0 when the last sample is on its way."""
        if self.generated >= self.request.max_tokens:
            return 0
        return len(self.tokens) + self.pending - self.computed

    @property
    def known(self) -> int:
        """Positions whose token is there or on its way."""
        return len(self.tokens) + self.pending
