"""Whether a geometry can be a model's: what the families check of the keys that they read.

Said of the geometry itself, because a v2 file states it as it is. Sizes that no weight shows are
bounded here, so that nothing grows with a number that a file merely claims.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from halogend.checkpoint.errors import shown
from halogend.checkpoint.families import FAMILIES
from halogend.checkpoint.geometry import Experts, Geometry
from halogend.checkpoint.parameters import LEAST, MOST
from halogend.checkpoint.rope import MOST_POSITIONS, Rope
from halogend.checkpoint.v2.rules import broken

_MOST_LAYERS, _MOST_HEADS, _MOST_EXPERTS, _MOST_EXPERTS_IN_ALL = 4096, 65536, 1024, 1 << 18
_MOST_SIZE, _MOST_ROPES = 1 << 31, 16
DIVISORS = frozenset({"rope_freqs", "rope_factors_short", "rope_factors_long"})
_WHOLE = {
    "layers": _MOST_LAYERS,
    "hidden": _MOST_SIZE,
    "heads": _MOST_HEADS,
    "kv_heads": _MOST_HEADS,
    "head_dim": _MOST_HEADS,
    "ffn": _MOST_SIZE,
    "vocab": _MOST_SIZE,
    "context_length": MOST_POSITIONS,
}
_POSITIVE = ("rms_eps", "query_scale", "embedding_scale")
_CAPS = ("attention_softcap", "logits_softcap")


def check_geometry(geometry: Geometry, path: Path) -> None:
    """Raises CheckpointError: rules V2-16 and V2-17."""
    known = {family.name for family in FAMILIES}
    if geometry.architecture not in known:
        what = f"architecture {shown(geometry.architecture)} is not supported; supported are {', '.join(sorted(known))}"
        raise broken("V2-16", path, what)
    for key, what in _faults(geometry):
        raise broken("V2-17", path, f"the metadata's key 'model.{key}' {what}")


def _faults(g: Geometry) -> Iterator[tuple[str, str]]:
    yield from _size_faults(g)
    yield from _layer_faults(g)
    yield from ((f"ropes[{index}]", what) for index, rope in enumerate(g.ropes) for what in _rope_faults(rope, g))
    if g.experts is not None:
        yield from (("experts", what) for what in _expert_faults(g.experts, g.layers))


def _size_faults(g: Geometry) -> Iterator[tuple[str, str]]:
    for key, most in _WHOLE.items():
        if not 1 <= (value := getattr(g, key)) <= most:
            yield key, f"is {shown(value)}; it must be from 1 to {most}"
    for key in (*_POSITIVE, *_CAPS):
        value = getattr(g, key)
        if not (LEAST <= value <= MOST or (key in _CAPS and value == 0)):
            yield key, f"is {shown(value)}; a number from {LEAST:g} to {MOST:g} is wanted"
    if g.heads % g.kv_heads:
        yield "kv_heads", f"is {g.kv_heads}, no divisor of {g.heads} heads"
    if g.head_dim % 2:
        yield "head_dim", f"is {g.head_dim}; it must be even"


def _layer_faults(g: Geometry) -> Iterator[tuple[str, str]]:
    for key in ("windows", "rope_of"):
        if (count := len(getattr(g, key))) != g.layers:
            yield key, f"has {count} entries for {g.layers} layers"
    if any(window is not None and not 1 <= window <= MOST_POSITIONS for window in g.windows):
        yield "windows", f"has one that is not from 1 to {MOST_POSITIONS}"
    if not 1 <= len(g.ropes) <= _MOST_ROPES:
        yield "ropes", f"has {len(g.ropes)} entries; 1 to {_MOST_ROPES} are possible"
    if any(not 0 <= index < len(g.ropes) for index in g.rope_of):
        yield "rope_of", f"names a rope beyond the {len(g.ropes)} that there are"


def _rope_faults(rope: Rope, g: Geometry) -> Iterator[str]:
    if not 1 <= len(rope.frequencies) <= g.head_dim // 2:
        yield f"turns {len(rope.frequencies)} pairs of heads of {g.head_dim}"
    if not all(math.isfinite(value) and 0 <= value <= MOST for value in rope.frequencies):
        yield "has a frequency that is no angle"
    if not LEAST <= rope.magnitude <= MOST:
        yield f"has the magnitude {shown(rope.magnitude)}; {LEAST:g} to {MOST:g} is wanted"
    if rope.divisors is not None and rope.divisors not in DIVISORS:
        yield f"names the divisors {shown(rope.divisors)}; known are {', '.join(sorted(DIVISORS))}"
    if not all(count is None or 1 <= count <= MOST_POSITIONS for count in (rope.original_context, rope.made_for)):
        yield f"has a context that is not from 1 to {MOST_POSITIONS}"
    if (rope.beyond is None) != (rope.original_context is None):
        yield "has one of original_context and beyond, which belong together"
    if rope.beyond is not None:
        if rope.beyond.beyond is not None:
            yield "goes on beyond what is beyond"
        else:
            yield from _rope_faults(rope.beyond, g)


def _expert_faults(experts: Experts, layers: int) -> Iterator[str]:
    if len(experts.layers) != layers:
        yield f"has {len(experts.layers)} entries for {layers} layers"
    if not 1 <= experts.used <= experts.count <= _MOST_EXPERTS:
        yield f"uses {experts.used} of {experts.count}; up to {_MOST_EXPERTS} are possible"
    if experts.count * sum(experts.layers) > _MOST_EXPERTS_IN_ALL:
        yield f"has more than {_MOST_EXPERTS_IN_ALL} in all"
    if not 1 <= experts.ffn <= _MOST_SIZE:
        yield f"has the width {shown(experts.ffn)}; it must be from 1 to {_MOST_SIZE}"
