"""Every message that crosses a process border.

    daemon <--control--> text, engine      lifecycle, progress, live updates, stats
    daemon <--data-----> text              Submit, Abort          /  TextEvents
    text   <--data-----> engine            Generate, Abort        /  StepOutput

Request ids are chosen by the daemon and are unique within a generation. All times are seconds,
all sizes bytes unless the name says `_tokens` or `_blocks`.
"""

from __future__ import annotations

import msgspec

from halogend.wire.part import Part
from halogend.wire.policy import Caller, EnginePolicy

WIRE_VERSION = 5


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Base of the closed union; the tag is the class name."""


# --- values ---------------------------------------------------------------------------------


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


class Failure(Part, frozen=True, kw_only=True):
    """Why something ended: a stable snake_case `code` (rows in api/errors.py for requests,
    an HCF/HRT/HCK code for a start) and a sentence that names the thing and the remedy.
    `param` is the request field at fault, if one is."""

    code: str
    message: str
    param: str | None = None


class Usage(Part, frozen=True, kw_only=True):
    """`cached_tokens` of the prompt's were there from requests before and not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Limits(Part, frozen=True, kw_only=True):
    """Token limits a text process checks; `max_model_len` bounds prompt plus completion."""

    max_prompt_len: int
    max_decode_len: int
    max_model_len: int


class EngineLimits(Part, frozen=True, kw_only=True):
    """What the scheduler may be told while it runs. `max_model_len` bounds prompt plus completion
    of a request, `pool_bytes` is the KV pool's limit: it must hold one such request."""

    max_model_len: int
    max_batch: int
    max_queue: int
    queue_timeout_s: float
    request_timeout_s: float  # 0 is off
    prefill_chunk_tokens: int  # 0 is auto
    pool_bytes: int
    policy: EnginePolicy = EnginePolicy()


class EngineSpec(Part, frozen=True, kw_only=True):
    """A generation's engine, frozen before its process starts. `max_model_len` is the checkpoint's own
    context, the most that `limits.max_model_len` can be.

    `pool_reserve_bytes` is the address range reserved for the KV pool: `limits.pool_bytes` may be
    raised up to it without a restart. `pool_floor_bytes` of it are touched before the engine is ready,
    the rest as it is used. `threads` are intra-operator threads. The scheduler is audited when the engine rests and
    at its end, and after every `audit_steps` steps where that is not 0. Of the weights of a v2 checkpoint that are
    used as they lie up to `mmap_threshold` stay mapped; with `verify` full its bytes are compared with their digests.
    """

    path: str
    load_format: str  # auto | v2 | gguf | safetensors
    precision: str  # of the weights: fp32 | bf16 | fp16 | int8 | fp8 | int4
    compute_dtype: str  # of products: fp32 | bf16 | fp16
    stretched: bool  # rotary angles for requests past the original context, where there are two kinds
    kv_cache_dtype: str  # fp32 | bf16 | fp16 | fp8 | int8
    flash_attention: bool
    backend: str  # cpu | reference | triton
    max_model_len: int
    pool_reserve_bytes: int
    threads: int
    load_threads: int  # 0 is auto
    limits: EngineLimits
    loader_niceness: int = 0  # of the threads that load: above 0 where others serve on these cores
    pool_floor_bytes: int = 0
    audit_steps: int = 0
    mmap_threshold: float = 0.9
    verify: str = "header"  # header | full
    device: str = "cpu:0"  # cuda:N or rocm:N: whose memory holds weights and pool; any processor is cpu:0
    may_compile: bool = True  # kernels that `kernel_cache` lacks
    kernel_cache: str = ""  # a folder; empty: there is no place for one


class TextSpec(Part, frozen=True, kw_only=True):
    """A generation's text process. `chat_template` is Jinja source, or None for the model's own."""

    path: str
    load_format: str
    chat_template: str | None
    limits: Limits
    loader_niceness: int = 0  # as an engine's


# --- control: both ways -----------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """Of a process, once, on its control socket: it has imported what it needs and takes orders. What was said to it
    before lies in the socket and is read then.

    Only Progress and StartFailed may come before. Whoever hears them cannot know yet which version they are of, so
    these three are of one form in every version: fields may be added that have a default, and none be changed.
    """

    version: int
    role: str  # text | engine
    pid: int


class StartEngine(Message, frozen=True, kw_only=True):
    spec: EngineSpec


class StartText(Message, frozen=True, kw_only=True):
    spec: TextSpec


class Progress(Message, frozen=True, kw_only=True):
    """Sent at least once a second by a thread of its own. `counter` moves with every layer run,
    tensor loaded or kernel compiled; the daemon judges health by it. `busy` says work is pending:
    a busy process whose counter rests is wedged. `done`/`total` are bytes while loading."""

    stage: str  # importing | starting | compiling | loading | warming | serving
    counter: int
    busy: bool
    done: int = 0
    total: int = 0


class EngineReady(Message, frozen=True, kw_only=True):
    """`mapped_bytes` of `weights_bytes` lie in mapped files. `pool_bytes` is the KV pool's limit, `pool_touched_bytes`
    what it takes of the device now.
    `transient_bytes`: how far the process rose above what it holds now in the largest steps; None where
    that cannot be learnt."""

    weights_bytes: int
    pool_bytes: int
    block_bytes: int
    block_count: int
    load_s: float
    warmup_s: float
    kernels: dict[str, str]  # operator -> implementation that was chosen
    pool_touched_bytes: int = 0
    transient_bytes: int | None = None
    mapped_bytes: int = 0


class TextReady(Message, frozen=True, kw_only=True):
    vocab_size: int
    has_chat_template: bool
    load_s: float


class StartFailed(Message, frozen=True, kw_only=True):
    """Before Hello: not even the imports could be done."""

    failure: Failure


class PrepareEngine(Message, frozen=True, kw_only=True):
    """First half of a live update: check and hold. Answered by Prepared."""

    update: int
    limits: EngineLimits


class PrepareText(Message, frozen=True, kw_only=True):
    update: int
    limits: Limits
    chat_template: str | None


class Prepared(Message, frozen=True, kw_only=True):
    update: int
    failure: Failure | None = None


class Commit(Message, frozen=True, kw_only=True):
    """Second half: take what was prepared under this number. Takes effect between two steps."""

    update: int


class PoolResized(Message, frozen=True, kw_only=True):
    """An engine's answer to Commit: what is behind the pool's limit was given back, and the daemon may
    count it as free. `pool_bytes` is the limit, `touched_bytes` what the pool takes now."""

    update: int
    pool_bytes: int
    touched_bytes: int


class Discard(Message, frozen=True, kw_only=True):
    update: int


class SetThreads(Message, frozen=True, kw_only=True):
    """How many intra-operator threads an engine may use from the next step on: cores are shared
    out anew whenever generations come or go."""

    threads: int


class SetRest(Message, frozen=True, kw_only=True):
    """The share of the time that an engine computes nothing from the next step on, below 1: its device is too hot."""

    share: float


class EngineStats(Message, frozen=True, kw_only=True):
    """A snapshot, about once a second while anything changes. Counters only grow.

    `blocks_used` cannot be had: requests hold them, or (`blocks_pinned` of them) nothing but a pin. `blocks_cached`
    are kept and make room where it is wanted; the rest of `blocks_total` is free. `blocks_reserved` are no blocks
    yet: what running requests will probably take besides. `running` and `waiting` count every lane."""

    running: int
    waiting: int
    blocks_total: int
    blocks_used: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
    steps: int
    prefill_step_s: float  # sum over steps that held a prompt chunk
    decode_step_s: float  # sum over the others
    pool_touched_bytes: int = 0
    blocks_cached: int = 0
    blocks_pinned: int = 0
    blocks_reserved: int = 0
    evictions: dict[str, int] = msgspec.field(default_factory=dict)  # blocks by reason, since the start
    prefix_query_tokens: int = 0  # of prompts that were looked up
    prefix_hit_tokens: int = 0  # of them found
    running_long: int = 0
    waiting_long: int = 0
    internal_fragmentation: float = 0.0  # unwritten slots / referenced slots
    external_fragmentation: float = 0.0  # 1 - share of long requests' tokens in runs of 128 and more
    largest_gap_s: float = 0.0  # between two tokens of one request, since the last snapshot
    queue_s: tuple[float, ...] = ()  # waits that ended since the last snapshot
    step_s: tuple[tuple[str, float], ...] = ()  # (kind, seconds) of steps since the last snapshot


class Stop(Message, frozen=True, kw_only=True):
    """End now: whatever still runs is lost. Draining is the daemon's business and is over."""


# --- data ---------------------------------------------------------------------------------------


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


AnyMessage = (
    Hello
    | StartEngine
    | StartText
    | Progress
    | EngineReady
    | TextReady
    | StartFailed
    | PrepareEngine
    | PrepareText
    | Prepared
    | Commit
    | PoolResized
    | Discard
    | SetThreads
    | SetRest
    | EngineStats
    | Stop
    | Submit
    | Abort
    | TextEvents
    | Generate
    | StepOutput
)
