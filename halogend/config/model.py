"""One model, as the document says it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from halogend.config import values
from halogend.config.devices import DeviceList, DeviceRef
from halogend.config.fields import GENERATION, IDENTITY, LIVE, NEXT_LOAD, setting
from halogend.config.kinds import EngineVersion, Millis, Name, PathText, Size, Tokens
from halogend.config.loading import KernelsConfig, LoadConfig, WarmupConfig
from halogend.config.policy import EvictionConfig, LongPromptConfig, PoolConfig, WatermarkConfig
from halogend.config.replacing import ModelReloadConfig, ProbationConfig
from halogend.config.sampling import SamplingConfig
from halogend.config.section import Section


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
        "Path of the checkpoint: a v2 file (.hgn2), a .gguf file (the first of several parts) or a Hugging Face "
        "directory with safetensors. A relative path starts at the daemon's working directory.",
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
    load_format: Literal["auto", "v2", "gguf", "safetensors"] = setting(
        "Format of the checkpoint; `auto` decides by the first bytes, and a contradiction is an error.",
        GENERATION,
        default="auto",
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
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8", "fp8", "int4"] = setting(
        "Of the weights in memory; `auto` is that of a v2 checkpoint in int8 or int4 (on an accelerator fp8 too), and "
        "on a CPU else bf16 where the CPU has it, else fp32. `int8` and `fp8` (a scale for each row) and `int4` ("
        "groups of 32, asymmetric) round at load; beside fp8 and int4 the output matrix is int8. `fp16` and `fp8` need "
        "the kernels of accelerators.",
        GENERATION,
        default="auto",
    )
    kernels: KernelsConfig = Field(default=KernelsConfig(), description="Which implementation computes the model.")
    mmap_threshold: float = setting(
        "The most of a v2 checkpoint's weights that is used where the file is mapped: shared with whoever maps it too, "
        "and dropped and read again under memory pressure. The others are copied, or packed where the kernels do not "
        "take their layout.",
        NEXT_LOAD,
        default=0.9,
        ge=0,
        le=1,
    )
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
    kv_cache_dtype: Literal["auto", "bf16", "fp32", "fp8", "int8"] = setting(
        "Number format of the KV memory; `auto` follows precision. `fp8` and `int8` (a scale for each head of a "
        "position) need the kernels of accelerators.",
        GENERATION,
        default="auto",
        later=("fp16",),
    )
    kv_block_pool: PoolConfig = Field(default=PoolConfig(), description="The bounds of the KV pool.")
    watermarks: Annotated[WatermarkConfig | None, BeforeValidator(values.or_off)] = setting(
        "Shares of the pool in use above which admission is choosy, and stops.",
        LIVE,
        default=WatermarkConfig(),
        unset="as below",
        section=True,
        word=values.OFF,
    )
    eviction: EvictionConfig = Field(default=EvictionConfig(), description="What of the cache makes room first.")
    cache_scope: Literal["key", "shared"] = setting(
        "Who may use what is in the cache of prompts: requests of the same API key, or all. With `shared`, how fast "
        "an answer begins tells whether somebody else sent the same prompt before.",
        LIVE,
        default="key",
    )
    max_batch: int = setting("Requests computed together.", LIVE, default=64, unit="requests", ge=1, le=4096)
    max_queue: int = setting(
        "Requests that may wait; over it: 503 with Retry-After.", LIVE, default=512, unit="requests", ge=1, le=65536
    )
    max_queue_tokens: Annotated[int, Field(ge=0, le=1 << 32)] = setting(
        "Prompt tokens that may wait together; over it: 503 with Retry-After. 0 is off.",
        LIVE,
        default=0,
        unit="tokens",
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
    prefill_timeout_ms: Annotated[Millis, Field(ge=0)] = setting(
        "A prompt whose chunks took so much time of steps goes on as a long one; 0 is off.",
        LIVE,
        default=3000,
        unit="ms",
    )
    max_gap_ms: Annotated[Millis, Field(ge=0)] = setting(
        "Prompt chunks are made so small that a step beside running answers takes no longer, as far as steps "
        "measured before tell; 0 is off.",
        LIVE,
        default=250,
        unit="ms",
    )
    long_prompt: Annotated[LongPromptConfig | None, BeforeValidator(values.or_off)] = setting(
        "The lane of long prompts.", LIVE, default=LongPromptConfig(), unset="as below", section=True, word=values.OFF
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
