"""The document after parsing: one frozen value, every field concrete.

Each field says what it means, in which unit, its default, what an absent value stands for and what a
change of it means; docs, JSON Schema and the planner read it from here and from nowhere else. A field
is None only where the value comes from the model or the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from halogend.config import values
from halogend.config.access import OPEN, AuthConfig, TlsConfig, stated_auth
from halogend.config.fields import Apply, FieldDoc, leaf_fields, setting, unindexed
from halogend.config.section import Section

API_VERSION = "halogen.dev/v1alpha1"
DEFAULT_MODEL_NAME = "default"
MAX_TOKENS = 1 << 24
DAY_S = 86_400

LIVE, GENERATION, LISTENER = Apply.LIVE, Apply.GENERATION, Apply.LISTENER
NEXT_LOAD, IDENTITY = Apply.NEXT_LOAD, Apply.IDENTITY

Size = Annotated[
    int,
    BeforeValidator(values.size_bytes),
    Field(ge=1, le=values.MAX_BYTES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": values.MAX_BYTES},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(KiB|MiB|GiB|TiB)$"},
            ],
            "x-accepts": "a size such as 70GiB, or a number of bytes",
        }
    ),
]
Name = Annotated[str, BeforeValidator(values.model_name)]
Host = Annotated[str, BeforeValidator(values.host_address)]
AdminAddress = Annotated[str, BeforeValidator(values.admin_address)]
DeviceId = Annotated[str, BeforeValidator(lambda value: values.device_id(value, auto=False))]
_DEVICE_ENTRY = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"id": {"type": "string"}, "weight": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["id"],
            "additionalProperties": False,
        },
    ]
}
DeviceChoice = Annotated[str, BeforeValidator(lambda value: values.device_id(value, auto=True))]
CoreList = Annotated[
    str,
    BeforeValidator(values.core_list),
    WithJsonSchema({"type": "string", "x-accepts": 'numbers of cores such as "0-3,8", in quotes'}),
]
PathText = Annotated[str, Field(min_length=1, max_length=4096)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Millis = Annotated[int, Field(le=DAY_S * 1000)]
EngineVersion = Literal["0.15.2"]
Strategy = Literal["auto", "overlap", "shrink", "rolling", "replace"]
DrainTimeout = Annotated[float, Field(ge=0, le=DAY_S)] | Literal["auto"]


class ServerConfig(Section):
    """The listeners."""

    host: Host = setting("Address the inference listener binds.", LISTENER, default="127.0.0.1")
    port: int = setting("Port of the inference listener.", LISTENER, default=8000, ge=1, le=65535)
    tls: TlsConfig | None = setting(
        "TLS of the inference listener. New connections take a changed certificate, open ones keep theirs.",
        LIVE,
        default=None,
        unset="plain HTTP",
        section=True,
    )
    admin: AdminAddress | None = setting(
        "Where the admin listener is: `unix:` and an absolute path, or `host:port`, which needs TLS and an API key "
        "with the scope `admin`.",
        LISTENER,
        default=None,
        unset="/run/halogend/admin.sock, or $XDG_RUNTIME_DIR/halogend/admin.sock for a user who may not write there",
    )
    admin_tls: TlsConfig | None = setting(
        "TLS of an admin listener on TCP, where it has a certificate of its own.",
        LIVE,
        default=None,
        unset="that of `tls`",
        section=True,
    )
    auth: Annotated[AuthConfig | None, BeforeValidator(stated_auth)] = setting(
        "Who may use the models. `none` states that open access is meant; a listener beyond loopback needs keys or "
        "that word.",
        LIVE,
        default=None,
        unset="open on loopback, refused beyond it",
        section=True,
        word=OPEN,
    )
    ready: Literal["any", "all"] = setting(
        "Whether /readyz wants one model serving or all of them.", LIVE, default="any"
    )


class DeviceConfig(Section):
    """What the daemon may use of one device. A device that is not listed is discovered. A list with several
    of `cpu:N` divides the host: each is a device of its own, with its cores and its part of the memory."""

    id: DeviceId = setting("The device, such as cpu:0.", IDENTITY)
    cores: CoreList | None = setting(
        "Processor cores of a `cpu:N`, on which the engines of its models run and no others. A change is a new "
        "generation of the models on it.",
        GENERATION,
        default=None,
        unset="every core that no other device of the list names",
    )
    memory: Size | None = setting(
        "Memory halogend may use on the device.",
        LIVE,
        default=None,
        unit="bytes",
        unset="all the device has; where the host is divided, a share by cores of what the others leave",
    )
    reserve: Size | None = setting(
        "Memory kept free out of it.", LIVE, default=None, unit="bytes", unset="a share that suits the device"
    )
    spare: bool = setting(
        "Kept for newcomers: a model whose new generation does not fit beside the old one is loaded here. No model "
        "may name it, and `auto` never means it.",
        LIVE,
        default=False,
    )


class ModelReloadConfig(Section):
    """How a model is replaced."""

    strategy: Strategy = setting(
        "How a new generation takes the old one's place: `overlap` loads it beside the old one (on a spare device, "
        "or for `device: auto` on an idle one, where its own has no room), `shrink` lets the old pool give memory "
        "back first, `rolling` takes a data-parallel model device by device (the old replica ends, the others and the "
        "new ones serve), `replace` ends the old one first (requests wait meanwhile). `auto` is the first that fits "
        "of overlap, shrink and rolling, else a refusal with the numbers.",
        LIVE,
        default="auto",
    )
    drain_timeout_s: DrainTimeout = setting(
        "How long requests of the old generation may still run; `auto` is 1.5 times the p99 of a full request, "
        "between 30 and 900 s.",
        LIVE,
        default="auto",
        unit="s",
    )


class ReloadConfig(ModelReloadConfig):
    """How changes are carried out."""

    atomic: bool = setting(
        "Whether all models of a change, and its listeners, switch at one moment, or none. What is removed or "
        "replaced gives its memory back only after that.",
        LIVE,
        default=False,
    )
    max_parallel_loads: int = setting(
        "Models that may load at once. More of them start sooner together and slow each other, and what serves, down.",
        LIVE,
        default=1,
        unit="loads",
        ge=1,
        le=64,
    )


class ProbationConfig(Section):
    """For how long the generation before stands by, and what of the new one brings it back."""

    s: float = setting("How long, from the switch on.", LIVE, unit="s", gt=0, le=DAY_S)
    max_error_rate: float = setting(
        "Share of requests that may end in a 5xx or an error event; over it the one before serves again.",
        LIVE,
        default=0.05,
        ge=0,
        le=1,
    )
    min_requests: int = setting(
        "Requests that must have ended before their share of errors counts. The death of the engine always does.",
        LIVE,
        default=20,
        unit="requests",
        ge=1,
        le=1_000_000,
    )


class DeviceRef(Section):
    """A device a model runs on."""

    id: DeviceChoice
    weight: float = Field(default=1.0, gt=0, le=1000)


DeviceList = Annotated[
    tuple[DeviceRef, ...],
    BeforeValidator(values.device_entries),
    WithJsonSchema(
        {
            "anyOf": [*_DEVICE_ENTRY["anyOf"], {"type": "array", "items": _DEVICE_ENTRY, "minItems": 1}],
            "x-accepts": "auto, a device such as cpu:0, or a list of devices",
        }
    ),
]


class KernelsConfig(Section):
    """Which implementation computes the model."""

    flash_attention: bool = setting(
        "Fused attention; off computes it step by step. Accepted at the model's top level too.",
        GENERATION,
        default=True,
    )
    backend: Literal["auto", "cpu", "reference"] = setting(
        "`cpu` is the fast path for processors, `reference` plain and slow arithmetic to compare with.",
        GENERATION,
        default="auto",
        later=("triton",),
    )
    compile: Literal["auto", "off"] = setting("Whether kernels may be compiled at load.", GENERATION, default="auto")


class LoadConfig(Section):
    """How a load is watched and checked."""

    progress_timeout_s: float = setting(
        "A load that moves nothing for this long has failed; a slow one that moves never has. Progress is told once a "
        "second, and a process needs seconds before it has anything to tell.",
        NEXT_LOAD,
        default=60.0,
        unit="s",
        ge=5,
        le=DAY_S,
    )
    verify: Literal["header"] = setting(
        "How much of the file is checked before it is used.", NEXT_LOAD, default="header", later=("full", "off")
    )


def _sampling(description: str, **limits: Any) -> Any:
    return setting(description, LIVE, default=None, unset="the model's", **limits)


class SamplingConfig(Section):
    """Defaults for requests that do not say; a field of the request always wins."""

    temperature: float | None = setting(
        "Randomness; 0 takes the likeliest token.", LIVE, default=None, unset="the model's, else 0.6", ge=0, le=2
    )
    top_p: float | None = setting(
        "Share of probability that is kept.", LIVE, default=None, unset="the model's, else 0.85", gt=0, le=1
    )
    top_k: int | None = _sampling("Number of likeliest tokens kept; 0 is off.", ge=0, le=MAX_TOKENS)
    min_p: float | None = _sampling("Least share of the likeliest token's probability; 0 is off.", ge=0, le=1)
    repetition_penalty: float | None = _sampling("Divides the scores of tokens seen; 1 is off.", gt=0, le=10)
    presence_penalty: float | None = _sampling("Taken off the scores of tokens in the answer.", ge=-2, le=2)
    frequency_penalty: float | None = _sampling("The same, for each time they stand there.", ge=-2, le=2)


class WarmupConfig(Section):
    """What happens before a generation may serve."""

    kernels: bool = setting("Run each kernel once.", NEXT_LOAD, default=True)
    prompt: str = setting("Text to answer once; empty is none.", NEXT_LOAD, default="", max_length=1 << 16)


class ModelConfig(Section):
    """One model."""

    name: Name = setting("What clients put in `model`, and the model's identity across edits.", IDENTITY)
    aliases: tuple[Name, ...] = setting(
        "Other names it answers to. Models may share one: traffic is split by `weight`.",
        LIVE,
        default=(),
        max_length=64,
    )
    path_alias: bool = setting(
        "Whether the last part of `model`'s path (without .gguf) is a name too, and the previous one until its "
        "generation is gone. The short form sets it.",
        LIVE,
        default=False,
    )
    weight: float = setting(
        "Share of the traffic of an alias that several models have.", LIVE, default=1.0, ge=0, le=1000
    )
    model: PathText = setting(
        "Path of the checkpoint: a .gguf file (the first of several parts) or a Hugging Face directory with "
        "safetensors. A relative path starts at the daemon's working directory.",
        GENERATION,
        path=True,
    )
    engine_version: EngineVersion | None = setting(
        "Version whose defaults the fields that are not set keep, whatever later releases have. They become "
        "fields of the canonical form, and a change of it shows as changes of those, each with its own class.",
        LIVE,
        default=None,
        unset="the defaults of this page",
    )
    load_format: Literal["auto", "gguf", "safetensors"] = setting(
        "Format of the checkpoint; `auto` decides by the first bytes, and a contradiction is an error.",
        GENERATION,
        default="auto",
        later=("v2",),
    )
    device: DeviceList = setting(
        "Where it runs: a device, a comma list, a list, or entries of `{id, weight}`, by whose weights requests are "
        "shared out. Under `exec_mode: data_parallel` devices come and go live, as long as one of them stays.",
        GENERATION,
        default=(DeviceRef(id="auto"),),
        min_length=1,
        max_length=64,
    )
    exec_mode: Literal["single", "data_parallel"] = setting(
        "How several devices work together: `single` is one device, `data_parallel` a whole copy of the model on "
        "each, and a request goes to the one with the most room.",
        GENERATION,
        default="single",
        later=("tensor_parallel",),
    )
    precision: Literal["auto", "fp32", "bf16", "int8", "int4"] = setting(
        "Of the weights in memory; `auto` on a CPU is bf16 where the CPU has it, else fp32. `int8` (a scale for "
        "each row) and `int4` (groups of 32, asymmetric; the output matrix keeps eight bits) round at load.",
        GENERATION,
        default="auto",
        later=("fp16", "fp8"),
    )
    kernels: KernelsConfig = Field(default=KernelsConfig(), description="Which implementation computes the model.")
    load_thread_num: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = setting(
        "Threads that read the checkpoint; 1 reads in order, for slow shared disks.", NEXT_LOAD, default="auto"
    )
    load: LoadConfig = Field(default=LoadConfig(), description="How a load is watched and checked.")
    kv_cache_ratio: float | None = setting(
        "Share of the device's KV budget (memory less reserve, foreign use, weights and working memory) this "
        "model's pool may grow to. Not a share of all memory.",
        LIVE,
        default=None,
        unset="0.75 shared by the models of a device that set neither this nor kv_cache_bytes",
        gt=0,
        le=1,
    )
    kv_cache_bytes: Size | None = setting(
        "The same as a size.", LIVE, default=None, unit="bytes", unset="kv_cache_ratio counts"
    )
    kv_cache_dtype: Literal["auto", "bf16", "fp32"] = setting(
        "Number format of the KV memory; `auto` follows precision.",
        GENERATION,
        default="auto",
        later=("fp16", "fp8", "int8"),
    )
    max_batch: int = setting("Requests computed together.", LIVE, default=64, unit="requests", ge=1, le=4096)
    max_queue: int = setting(
        "Requests that may wait; over it: 503 with Retry-After.", LIVE, default=512, unit="requests", ge=1, le=65536
    )
    queue_timeout_ms: Annotated[Millis, Field(ge=1)] = setting(
        "Longest wait for a place; over it: 503 with Retry-After.", LIVE, default=60_000, unit="ms"
    )
    request_timeout_ms: Annotated[Millis, Field(ge=0)] = setting(
        "Longest time from arrival to the last token; 0 is off.", LIVE, default=0, unit="ms"
    )
    max_prompt_len: Tokens | None = setting(
        "Longest prompt; over it: 400, never a truncation.", LIVE, default=None, unit="tokens", unset="the model's"
    )
    max_decode_len: Tokens | None = setting(
        "Longest answer a request may ask for.", LIVE, default=None, unit="tokens", unset="the model's"
    )
    max_model_len: Tokens | None = setting(
        "Longest prompt and answer together.", LIVE, default=None, unit="tokens", unset="the model's"
    )
    prefill_chunk: Tokens | Literal["auto"] = setting(
        "Prompt tokens computed in one step; `auto` sizes chunks from measured step times.",
        LIVE,
        default="auto",
        unit="tokens",
    )
    sampling: SamplingConfig = Field(default=SamplingConfig(), description="Defaults of sampling.")
    chat_template: PathText | None = setting(
        "Path of a Jinja template, or a built-in name (chatml).", LIVE, default=None, unset="the model's", path=True
    )
    warmup: WarmupConfig = Field(default=WarmupConfig(), description="What happens before it may serve.")
    probation: Annotated[ProbationConfig | None, BeforeValidator(values.or_off)] = setting(
        "Keep the generation before for a while after the switch, and go back to it if the new one dies or fails too "
        "many requests. Its memory is taken until then; any newer document ends it.",
        LIVE,
        default=None,
        unset="off",
        section=True,
        word="off",
    )
    reload: ModelReloadConfig = Field(
        default=ModelReloadConfig(), description="How this model is replaced; what is absent is the document's."
    )

    def request_tokens(self, context_length: int) -> int:
        """The most tokens of prompt and answer together that a request may have, for a model made for
        `context_length`."""
        both = self.max_prompt_len + self.max_decode_len if self.max_prompt_len and self.max_decode_len else None
        return min(limit for limit in (context_length, self.max_model_len, both) if limit is not None)

    @property
    def path_name(self) -> str:
        """The last part of the path, without .gguf."""
        return PurePosixPath(self.model).name.removesuffix(".gguf")

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a request may use, the model's own first, each once."""
        implicit = (self.path_name,) if self.path_alias and self.path_name else ()
        return tuple(dict.fromkeys((self.name, *self.aliases, *implicit)))


class Document(Section):
    """The whole document in its full form."""

    api_version: Literal["halogen.dev/v1alpha1"] = setting(
        "Version of the document's rules.", IDENTITY, default=API_VERSION, alias="apiVersion"
    )
    server: ServerConfig = Field(default=ServerConfig(), description="The listeners.")
    devices: tuple[DeviceConfig, ...] = Field(
        default=(), description="What may be used of each device; devices not listed are discovered.", max_length=64
    )
    reload: ReloadConfig = Field(default=ReloadConfig(), description="How changes are carried out.")
    allow_empty: bool = setting("Whether a document without models is meant.", LIVE, default=False)
    models: tuple[ModelConfig, ...] = Field(default=(), description="The models to serve.", max_length=256)

    def model_named(self, name: str) -> ModelConfig | None:
        """The model whose own name (not alias) is `name`."""
        return next((model for model in self.models if model.name == name), None)


@cache
def _fields_by_path() -> dict[str, FieldDoc]:
    return {field.path: field for field in leaf_fields(Document)}


def fields() -> Iterator[FieldDoc]:
    """Every leaf field of the document, in the order of the canonical form."""
    return iter(_fields_by_path().values())


def apply_class(path: str) -> Apply:
    """The class of a change of `path` (`server.port`, `models[0].kernels.backend`); KeyError if no leaf."""
    return _fields_by_path()[unindexed(path)].apply
