"""What an API server that has our definition says to whole manifests: pairs of files.

Valid: the manifest, and the spec as it is stored. Invalid: the manifest, and what is told, a line a
fault. `python tests/operator/test_manifests.py` writes the second parts anew, for a change that is meant.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from support.kube import cel, structural

from halogend.config.custom_resource_definition import definition

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests/cases/operator/manifests"
VALID = sorted((CASES / "valid").glob("*.yaml"))
INVALID = sorted((CASES / "invalid").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
_SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def admitted(manifest: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object as it would be stored, and why it would not. Rules run over what has the right types only."""
    pruned, _ = structural.prune(_SCHEMA, manifest)
    stored = structural.defaulted(_SCHEMA, pruned)
    faults = [cause.text for cause in structural.problems(_SCHEMA, stored)]
    return stored, faults or [cause.text for cause in cel.problems(_SCHEMA, stored)]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    manifest, expected = yaml.safe_load_all(path.read_text())
    stored, faults = admitted(manifest)
    assert faults == []
    assert stored["spec"] == expected


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid(path: Path) -> None:
    manifest, expected = yaml.safe_load_all(path.read_text())
    assert admitted(manifest)[1] == expected


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        assert structural.prune(_SCHEMA, manifest)[1] == []
        assert admitted(manifest)[1] == []


def test_pairs_are_there() -> None:
    assert len(VALID) > 5
    assert len(INVALID) > 30
    assert len(EXAMPLES) >= 5


if __name__ == "__main__":
    for each in (*VALID, *INVALID):
        text = each.read_text().partition("\n---\n")[0].rstrip()
        body, told = admitted(yaml.safe_load(text))
        result = told if "invalid" in str(each) else body["spec"]
        each.write_text(f"{text}\n---\n{yaml.safe_dump(result, sort_keys=False, width=116)}")
