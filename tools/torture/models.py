"""Tiny models to serve: `python -m torture.models FOLDER` writes them, in a process that may hold torch."""

from __future__ import annotations

import sys
from pathlib import Path

TINY = ("a", "b")
"""Two of one shape that answer differently; NAME.gguf each."""


def main(folder: Path) -> None:
    from support.tiny_models import tiny_llama  # noqa: PLC0415  the tests' own; other modules need no torch

    for seed, name in enumerate(TINY):
        tiny_llama(folder / f"{name}.gguf", layers=4, hidden=128, ffn=256, context=1024, seed=seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
