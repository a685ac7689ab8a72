"""For whose accelerators the installed torch is built, without importing it.

A build says so in a file of its own, `torch/version.py`: that is read, not run.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

_KINDS = {"cuda": "cuda", "hip": "rocm"}
_STATED = re.compile(r"^(?P<name>cuda|hip)\b[^=]*= *['\"](?P<version>[^'\"]+)['\"]", re.MULTILINE)


def torch_kinds() -> frozenset[str]:
    """Of cuda and rocm, those that torch can drive; none without torch, or with a build for the CPU."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return frozenset()
    return stated_kinds(Path(spec.origin).with_name("version.py"))


def stated_kinds(path: Path) -> frozenset[str]:
    """Of a build's `version.py`."""
    try:
        text = path.read_text()
    except OSError:
        return frozenset()
    return frozenset(_KINDS[found["name"]] for found in _STATED.finditer(text))
