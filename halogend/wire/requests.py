"""What goes over data channels: requests on their way in, tokens and text on their way out.

    daemon <--data--> text      Submit, Abort      /  TextEvents
    text   <--data--> engine    Generate, Abort    /  StepOutput

Request ids are chosen by the daemon and are unique within a generation.
"""

from __future__ import annotations

from halogend.wire.base import Message, Part
from halogend.wire.failure import Failure
from halogend.wire.policy import Caller


class Sampling(Part, frozen=True, kw_only=True):
    """How the next token is chosen; every field is concrete when it reaches a worker.

    `top_k` 0, `top_p` 1, `min_p` 0, penalties at 0 (repetition at 1) switch the step off;
    `temperature` 0 is greedy. `seed` with the token's position keys the random generator.
    """

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int


class ChatMessage(Part, frozen=True, kw_only=True):
    """One turn of a conversation, text only. `name` reaches the template when it is given."""

    role: str
    content: str
    name: str | None = None


class ChatPrompt(Part, frozen=True, kw_only=True, tag_field="kind", tag="chat"):
    messages: tuple[ChatMessage, ...]


class TextPrompt(Part, frozen=True, kw_only=True, tag_field="kind", tag="text"):
    text: str


class TokenPrompt(Part, frozen=True, kw_only=True, tag_field="kind", tag="tokens"):
    ids: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


class Usage(Part, frozen=True, kw_only=True):
    """`cached_tokens` of the prompt's were there from requests before and not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Submit(Message, frozen=True, kw_only=True):
    """`max_tokens` None: up to the limits. `stop` are stop strings, none empty."""

    id: int
    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...] = ()
    caller: Caller = Caller()


class Abort(Message, frozen=True, kw_only=True):
    """The requester is gone: free everything within one step. No answer is sent."""

    id: int


class Accepted(Part, frozen=True, kw_only=True, tag_field="event", tag="accepted"):
    """The prompt was encoded and handed to the engine."""

    id: int
    prompt_tokens: int


class Delta(Part, frozen=True, kw_only=True, tag_field="event", tag="delta"):
    """`text` may be empty (a token that completes no character): it still marks progress."""

    id: int
    text: str
    tokens: int


class Finished(Part, frozen=True, kw_only=True, tag_field="event", tag="finished"):
    """The one terminal event of a request. `reason` is stop or length; with `failure` set it is
    error and `failure` says why."""

    id: int
    reason: str  # stop | length | error
    usage: Usage
    failure: Failure | None = None


TextEvent = Accepted | Delta | Finished


class TextEvents(Message, frozen=True, kw_only=True):
    """Everything one step brought, for the whole batch."""

    events: tuple[TextEvent, ...]


class Generate(Message, frozen=True, kw_only=True):
    """`prompt_ids` is never empty. Generation ends at any of `stop_ids` (not reported as text)."""

    id: int
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop_ids: tuple[int, ...]
    caller: Caller = Caller()


class Sampled(Part, frozen=True, kw_only=True, array_like=True):
    id: int
    token: int


class Ended(Part, frozen=True, kw_only=True):
    """`reason`: stop (the last Sampled was a stop id), length, or error with `failure`."""

    id: int
    reason: str
    failure: Failure | None = None


class StepOutput(Message, frozen=True, kw_only=True):
    """One frame a step for the whole batch: tokens first, then ends. `reused` are (id, tokens): of requests
    that were admitted now for the first time, how much of the prompt was there already."""

    sampled: tuple[Sampled, ...]
    ended: tuple[Ended, ...]
    reused: tuple[tuple[int, int], ...] = ()
