"""Rotary positions as config.json states them: `rope_parameters`, or `rope_theta` with `rope_scaling`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from halogend.checkpoint import rope
from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, KEY_INVALID, CheckpointError, shown
from halogend.checkpoint.parameters import LEAST, MOST, RopeKind
from halogend.checkpoint.rope import Rope, Yarn

_NESTED = {"global": "full_attention", "local": "sliding_attention"}


def read_rope(path: Path, config: Mapping[str, Any], kind: RopeKind, head_dim: int, base: float, section: str) -> Rope:
    """Raises CheckpointError naming file and key, which begins with `section`."""
    stated = _Stated.of(path, config, kind, section)
    base = stated.number("rope_theta", base)
    if base <= 1:
        stated.invalid("rope_theta", f"is {base}; it must be above 1")
    share = stated.number("partial_rotary_factor", 1.0)
    turned = int(head_dim * share)
    if share > 1 or turned < 2 or turned % 2:
        stated.invalid("partial_rotary_factor", f"is {share}: {turned} of {head_dim} values of a head cannot be turned")
    label = stated.kind
    scale = _SCALINGS.get(label)
    if scale is None:
        known = ", ".join(_SCALINGS)
        what = f"rope scaling {shown(label)} (key {section + stated.where!r}) is not supported"
        raise CheckpointError(ARCHITECTURE_UNSUPPORTED, f"{path}: {what}; supported are {known}")
    return scale(stated, base, turned)


@dataclass(frozen=True, slots=True)
class _Stated:
    """One kind of layer's parameters. `where` is the key they stand under."""

    path: Path
    config: Mapping[str, Any]
    values: Mapping[str, Any]
    where: str
    section: str

    @classmethod
    def of(cls, path: Path, config: Mapping[str, Any], kind: RopeKind, section: str) -> _Stated:
        for where in ("rope_parameters", "rope_scaling"):
            values = config.get(where)
            if values is not None:
                break
        if values is not None and not isinstance(values, dict):
            raise CheckpointError(
                KEY_INVALID, f"{path}: key {section + where!r} is {shown(values)}; an object is wanted"
            )
        values = dict(values or {})
        nested = values.get(_NESTED[kind])
        if isinstance(nested, dict):
            return cls(path, config, nested, f"{where}.{_NESTED[kind]}", section)
        if kind == "local":  # the older spelling: a base of its own, never scaled
            where = "rope_local_base_freq"
            return cls(path, config, {"rope_theta": config.get(where)}, where, section)
        return cls(path, config, values, where, section)

    @property
    def kind(self) -> str:
        label = self.values.get("rope_type", self.values.get("type")) or "default"
        if not isinstance(label, str):
            self.invalid("rope_type", f"is {shown(label)}; a string is wanted")
        if label == "su" or (label == "yarn" and "short_factor" in self.values):
            return "longrope"
        return label

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        if value is None and name in ("rope_theta", "partial_rotary_factor"):
            value = self.config.get(name)
        if value is None:
            if default is None:
                self.invalid(name, "is missing")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
            self.invalid(name, f"is {shown(value)}; a number from {LEAST:g} to {MOST:g} is wanted")
        return float(value)

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def numbers(self, name: str, count: int) -> Sequence[float]:
        values = self.values.get(name)
        sound = isinstance(values, list) and all(
            isinstance(value, int | float) and not isinstance(value, bool) and LEAST <= value <= MOST
            for value in values
        )
        if not sound or values is None or len(values) != count:
            self.invalid(name, f"is no list of {count} numbers above 0")
        return [float(value) for value in values]

    @property
    def original_context(self) -> int:
        name = "original_max_position_embeddings"
        for values in (self.config, self.values):
            if values.get(name) is not None:
                return self._positions(name, values)
        return self._positions("max_position_embeddings", self.config)

    def _positions(self, name: str, values: Mapping[str, Any]) -> int:
        value = values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value <= rope.MOST_POSITIONS:
            self.invalid(name, f"is {shown(value)}; a whole number from 2 to {rope.MOST_POSITIONS} is wanted")
        return value

    def stretch(self) -> float:
        """`factor`, or what the two context lengths give."""
        if self.has("factor"):
            return self.number("factor")
        name = "max_position_embeddings"
        if self.config.get(name) is None:
            return self.number("factor")
        return self._positions(name, self.config) / self.original_context

    def invalid(self, name: str, what: str) -> NoReturn:
        inner = name in self.values or (name not in self.config and bool(self.values))
        key = f"{self.where}.{name}" if inner and self.where != name else name
        raise CheckpointError(KEY_INVALID, f"{self.path}: key {self.section + key!r} {what}")


def _plain(stated: _Stated, base: float, turned: int) -> Rope:
    del stated
    return rope.plain(base, turned)


def _linear(stated: _Stated, base: float, turned: int) -> Rope:
    return rope.linear(rope.plain(base, turned), stated.number("factor"))


def _llama3(stated: _Stated, base: float, turned: int) -> Rope:
    low, high = stated.number("low_freq_factor"), stated.number("high_freq_factor")
    if high <= low:
        stated.invalid("high_freq_factor", f"is {high}; it must be above low_freq_factor, {low}")
    return rope.llama3(rope.plain(base, turned), stated.number("factor"), low, high, stated.original_context)


def _yarn(stated: _Stated, base: float, turned: int) -> Rope:
    factor = stated.stretch()
    yarn = Yarn(
        factor,
        stated.original_context,
        stated.number("beta_fast", 32.0),
        stated.number("beta_slow", 1.0),
        stated.values.get("truncate", True) is not False,
        _yarn_magnitude(stated, factor),
    )
    return yarn.apply(base, turned)


def _yarn_magnitude(stated: _Stated, factor: float) -> float:
    if stated.has("attention_factor"):
        return stated.number("attention_factor")
    if stated.has("mscale") and stated.has("mscale_all_dim"):
        whole = rope.yarn_magnitude(factor, stated.number("mscale_all_dim"))
        return rope.yarn_magnitude(factor, stated.number("mscale")) / whole
    return rope.yarn_magnitude(factor)


def _longrope(stated: _Stated, base: float, turned: int) -> Rope:
    original = stated.original_context
    magnitude = stated.number("attention_factor", rope.longrope_magnitude(stated.stretch(), original))
    short, long = stated.numbers("short_factor", turned // 2), stated.numbers("long_factor", turned // 2)
    return rope.longrope(rope.plain(base, turned), short, long, magnitude, original)


_SCALINGS = {"default": _plain, "linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
