"""How a new generation takes the place of an old one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halogend.config.fields import LIVE, setting
from halogend.config.section import Section
from halogend.config.values import DAY_S

Strategy = Literal["auto", "overlap", "shrink", "rolling", "replace"]
DrainTimeout = Annotated[float, Field(ge=0, le=DAY_S)] | Literal["auto"]


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
    spare_worker: Literal["auto", "off"] = setting(
        "Whether an engine process that has imported what loads need stands by for the next one, which is then over "
        "sooner. `auto`: where its memory is left; it gives that back as soon as a pool or a model wants it.",
        LIVE,
        default="auto",
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
