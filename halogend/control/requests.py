"""A request for inference as the API hands it over, and the ways it can be refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from halogend.wire.policy import Caller
from halogend.wire.requests import Prompt

CLASS_HEADER = "X-Halogen-Class"
SESSION_HEADER = "X-Halogen-Session"


class RequestError(Exception):
    """A request that gets no answer, or no further answer.

    `code` is stable and snake_case; `api.errors` has one row for each (status, OpenAI type).
    `param` names the request field at fault. `retry_after_s` is set where trying again helps.
    """

    def __init__(self, code: str, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class SamplingChoice:
    """What the caller asked for; None leaves it to the model's defaults in the document."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """`max_tokens` None means up to the model's limits; `stop` holds no empty string. `classes` are those that the
    `caller` may name; None: every one that the model has."""

    model: str
    prompt: Prompt
    sampling: SamplingChoice = field(default_factory=SamplingChoice)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    caller: Caller = field(default_factory=Caller)
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of the active document. `state` is serving, waiting or failed; `generation` is 0
    while none serves; lengths in tokens, None while they are not known. `created` is the epoch
    second at which the serving generation took over."""

    name: str
    aliases: tuple[str, ...]
    generation: int
    state: str
    created: int
    has_chat_template: bool
    max_model_len: int | None = None
    max_prompt_len: int | None = None
    max_decode_len: int | None = None
