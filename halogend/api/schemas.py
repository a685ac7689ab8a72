"""Request bodies: which fields there are, what they may hold, and what is refused by name.

A field is taken, or known and refused unless it asks for nothing (`unsupported.py`), or unknown.
Nothing is dropped without a word.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError
from pydantic_core import ErrorDetails

from halogend.api.unsupported import NEUTRAL_COMMON, Neutral, take_out
from halogend.control.requests import InferenceRequest, RequestError, SamplingChoice
from halogend.wire.requests import Prompt

MAX_STOPS = 16
MAX_MESSAGES = 10_000
MAX_NAME_CHARS = 64
_MAX_KEYS = 128  # more than any route knows
_SHOWN_FAULTS = 8
_SHOWN_CHARS = 64  # of a name that came from outside


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StreamOptions(_Body):
    """`include_usage`: one more chunk, before the end, with the token counts."""

    include_usage: bool | None = None


StopString = Annotated[StrictStr, Field(min_length=1, max_length=1000)]


class GenerationBody(_Body):
    """What both routes share. None is absent; defaults are the model's, not ours."""

    model: Annotated[StrictStr, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage is True

    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self) -> SamplingChoice:
        return SamplingChoice(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=0 if self.top_k == -1 else self.top_k,  # -1 is "off" to some clients
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=self.seed,
        )

    def request(self, prompt: Prompt, max_tokens: int | None) -> InferenceRequest:
        return InferenceRequest(
            model=self.model, prompt=prompt, sampling=self.sampling(), max_tokens=max_tokens, stop=self.stops()
        )


class MessageBody(_Body):
    """One turn; `conversation` looks at what `content` holds."""

    role: StrictStr
    content: Any = None
    name: Annotated[StrictStr, Field(max_length=MAX_NAME_CHARS)] | None = None


class ChatBody(GenerationBody):
    messages: Annotated[list[MessageBody], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None

    def token_limit(self) -> int | None:
        """Either name; both only when they agree. Raises RequestError."""
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            text = f"`max_tokens` ({old}) and `max_completion_tokens` ({new}) disagree; give one of them"
            raise RequestError("invalid_value", text, param="max_completion_tokens")
        return old if old is not None else new


class CompletionBody(GenerationBody):
    """`prompt`: text or token ids; `completions` looks at what it holds."""

    prompt: Any


Body = TypeVar("Body", bound=GenerationBody)


def read(kind: type[Body], raw: dict[str, Any], neutral: dict[str, Neutral]) -> Body:
    """A JSON object as `kind`. Raises RequestError naming every field at fault; `param` is the first."""
    kept = take_out(raw, neutral)
    _refuse_crowds(kind, kept, (*NEUTRAL_COMMON, *neutral))
    try:
        body = kind.model_validate(kept)
    except ValidationError as error:
        raise _refusal(kind, error, (*NEUTRAL_COMMON, *neutral)) from error
    if body.stream_options is not None and not body.stream:
        raise RequestError("invalid_value", "`stream_options` goes with `stream: true` only", param="stream_options")
    return body


def _refuse_crowds(kind: type[BaseModel], raw: dict[str, Any], known: tuple[str, ...]) -> None:
    """An object with more keys than any route has fields is refused by its first strange one, before
    a fault is made for each of a million."""
    messages = raw.get("messages")
    objects: list[tuple[type[BaseModel], str, Any]] = [(kind, "", raw)]
    if isinstance(messages, list):
        objects += [(MessageBody, f"messages[{i}].", each) for i, each in enumerate(messages[:MAX_MESSAGES])]
    for owner, where, value in objects:
        if isinstance(value, dict) and len(value) > _MAX_KEYS:
            names = {*owner.model_fields, *(known if owner is kind else ())}
            strange = next((key for key in value if key not in names), "")
            path = f"{where}{strange[:_SHOWN_CHARS]}"
            raise RequestError("unknown_field", f"`{path}` is not a field of this route", param=path)


def _refusal(kind: type[BaseModel], error: ValidationError, known: tuple[str, ...]) -> RequestError:
    faults: dict[str, tuple[str, str]] = {}  # path -> code, sentence; a union tells each of its arms
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        path = path_of(_without_arms(detail["loc"]))
        if path not in faults:
            faults[path] = _describe(kind, detail, path, known)
        if len(faults) == _SHOWN_FAULTS:
            break
    first = next(iter(faults))
    sentences = [sentence for _, sentence in faults.values()]
    return RequestError(faults[first][0], "; ".join(sentences), param=first)


def _describe(kind: type[BaseModel], detail: ErrorDetails, path: str, known: tuple[str, ...]) -> tuple[str, str]:
    if detail["type"] == "missing":
        return "missing_field", f"`{path}` is required"
    if detail["type"] == "extra_forbidden":
        owner = MessageBody if detail["loc"][0] == "messages" else kind
        owner = StreamOptions if detail["loc"][0] == "stream_options" else owner
        names = [*owner.model_fields, *(known if owner is kind else ())]
        near = difflib.get_close_matches(str(detail["loc"][-1])[:_SHOWN_CHARS], names, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        return "unknown_field", f"`{path}` is not a field of this route{hint}"
    if path == "stop":
        return "invalid_value", f"`stop` takes a string or up to {MAX_STOPS} strings of 1 to 1000 characters"
    if detail["type"] == "model_type":
        return "invalid_value", f"`{path}` should be an object"
    reason = detail["msg"].removeprefix("Input ")
    return "invalid_value", f"`{path}` {reason[0].lower()}{reason[1:]}"


def _without_arms(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return location[:1] if location[0] == "stop" else location


def path_of(location: tuple[int | str, ...]) -> str:
    """('messages', 0, 'role') as `messages[0].role`."""
    text = ""
    for step in location:
        shown = step if isinstance(step, int) else step[:_SHOWN_CHARS]
        text += f"[{shown}]" if isinstance(step, int) else f".{shown}" if text else str(shown)
    return text
