"""Values on a command line that are judged the same wherever they stand."""

from __future__ import annotations

import argparse
from pathlib import Path


def file_name(text: str) -> str:
    """Raises ArgumentTypeError where there is none: an empty name would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty, and names no file or folder")
    return text


def path(text: str) -> Path:
    """As `file_name`."""
    return Path(file_name(text))


def count(text: str) -> int:
    """Of threads or processes. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError("a whole number from 1 to 1024 is wanted")
    return int(text)
