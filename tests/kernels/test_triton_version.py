"""The Triton that is claimed is the one that is tried: kernels use what its releases change."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import triton
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_the_claim_is_what_is_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (claimed,) = (Requirement(each) for each in extras["gpu"] if each.startswith("triton"))
    pinned = re.search(r"^triton==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert pinned[1] in claimed.specifier
    assert triton.__version__ in claimed.specifier
    major, minor = (int(part) for part in pinned[1].split(".")[:2])
    for untried in (f"{major}.{minor - 1}.9", f"{major}.{minor + 1}.0"):
        assert untried not in claimed.specifier
