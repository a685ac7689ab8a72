"""What the processor does by itself: which numbers it multiplies natively. Decides what is computed in where nothing
is said, in the daemon and in benchmarks alike."""

from __future__ import annotations

from pathlib import Path

_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def has_bf16(root: Path = Path("/")) -> bool:
    """Whether it multiplies bf16, by /proc/cpuinfo; one that says nothing does not."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    words: set[str] = set()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            words.update(value.split())
    return bool(words & _BF16_FLAGS)


def numbers(root: Path = Path("/")) -> str:
    """bf16 or fp32: what products are computed in on a processor where nothing else is asked."""
    return "bf16" if has_bf16(root) else "fp32"
