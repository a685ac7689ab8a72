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
