"""Typed look-ups in a GGUF header's metadata; each error names the file and the key."""

from __future__ import annotations

from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, KEY_INVALID, CheckpointError, shown
from halogend.checkpoint.gguf import ArrayRef, GgufHeader, Value
from halogend.checkpoint.parameters import LEAST, MOST


def missing(header: GgufHeader, key: str) -> CheckpointError:
    return CheckpointError(KEY_INVALID, f"{header.path}: metadata key {key!r} is missing")


def invalid(header: GgufHeader, key: str, what: str) -> CheckpointError:
    return CheckpointError(KEY_INVALID, f"{header.path}: metadata key {key!r} {what}")


def unsupported(header: GgufHeader, key: str, what: str) -> CheckpointError:
    return CheckpointError(ARCHITECTURE_UNSUPPORTED, f"{header.path}: metadata key {key!r} {what}")


def required(header: GgufHeader, key: str) -> Value:
    value = header.metadata.get(key)
    if value is None:
        raise missing(header, key)
    return value


def integer(header: GgufHeader, key: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
    """A whole number from `least` to `most`; `default` when the key is absent, unless that is None."""
    if default is not None and not header.has(key):
        return default
    value = required(header, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(header, key, f"is {_shown(value)}; a whole number is wanted")
    return _within(header, key, value, least, most)


def is_array(header: GgufHeader, key: str) -> bool:
    return isinstance(header.metadata.get(key), tuple | ArrayRef)


def integer_of_layers(header: GgufHeader, key: str, layers: int, *, least: int, most: int) -> int:
    """What an array of a whole number for each of `layers` has in all its places."""
    value = header.metadata[key]
    count = value.count if isinstance(value, ArrayRef) else len(value) if isinstance(value, tuple) else 0
    if count != layers:
        raise invalid(header, key, f"is an array of {count} for {layers} layers")
    numbers = sorted(set(header.numbers(key)))
    if len(numbers) > 1:
        raise unsupported(header, key, f"is from {numbers[0]} to {numbers[-1]}; layers that differ are not supported")
    if not isinstance(numbers[0], int):
        raise invalid(header, key, f"is an array of {_shown(numbers[0])}; whole numbers are wanted")
    return _within(header, key, numbers[0], least, most)


def positive(header: GgufHeader, key: str, default: float | None = None, *, or_zero: bool = False) -> float:
    """A number from LEAST to MOST, or 0 with `or_zero`; `default` when the key is absent, unless that is None."""
    if default is not None and not header.has(key):
        return default
    value = required(header, key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(header, key, f"is {_shown(value)}; a number is wanted")
    if not (LEAST <= value <= MOST or (or_zero and value == 0)):
        raise invalid(header, key, f"is {value}; a number from {LEAST:g} to {MOST:g} is wanted")
    return float(value)


def text(header: GgufHeader, key: str, default: str | None = None) -> str:
    if default is not None and not header.has(key):
        return default
    value = required(header, key)
    if not isinstance(value, str):
        raise invalid(header, key, f"is {_shown(value)}; a string is wanted")
    return value


def flag(header: GgufHeader, key: str, *, default: bool) -> bool:
    value = header.metadata.get(key, default)
    if not isinstance(value, bool):
        raise invalid(header, key, f"is {_shown(value)}; true or false is wanted")
    return value


def _within(header: GgufHeader, key: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise invalid(header, key, f"is {value}; it must be from {least} to {most}")
    return value


def _shown(value: Value) -> str:
    return shown(value) if isinstance(value, str | int | float) else "an array"
