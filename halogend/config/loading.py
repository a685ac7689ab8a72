"""How a model is loaded, and which implementation computes it."""

from __future__ import annotations

from typing import Literal

from halogend.config.fields import GENERATION, NEXT_LOAD, setting
from halogend.config.kinds import PathText
from halogend.config.section import Section
from halogend.config.values import DAY_S


class KernelsConfig(Section):
    """Which implementation computes the model."""

    flash_attention: bool = setting(
        "Fused attention; off computes it step by step. Accepted at the model's top level too.",
        GENERATION,
        default=True,
    )
    backend: Literal["auto", "cpu", "reference", "triton"] = setting(
        "`auto` is `cpu`, the fast path for processors, or `triton`, for accelerators. `reference` is plain and slow "
        "arithmetic to compare with; so is `triton` on a processor, in an interpreter, thousands of times slower.",
        GENERATION,
        default="auto",
    )
    compile: Literal["auto", "never"] = setting(
        "Whether kernels for a device that `cache_dir` lacks are compiled while the model loads; `never` makes a "
        "missing one an error before the model serves. A processor's need no compiling.",
        GENERATION,
        default="auto",
    )
    cache_dir: PathText | None = setting(
        "Folder of compiled kernels, filled by `halogend warmup-kernel` or while models load; complete, it may be a "
        "read-only mount.",
        GENERATION,
        default=None,
        unset="`kernels` in the daemon's own cache folder",
        path=True,
    )


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
    verify: Literal["header", "full"] = setting(
        "How much of the files is checked before they are used: what their headers say, or `full`: every byte of a v2 "
        "checkpoint too, by the digests that it carries.",
        NEXT_LOAD,
        default="header",
        later=("off",),
    )


class WarmupConfig(Section):
    """What happens before a generation may serve."""

    kernels: bool = setting("Run each kernel once.", NEXT_LOAD, default=True)
    prompt: str = setting("Text to answer once; empty is none.", NEXT_LOAD, default="", max_length=1 << 16)
