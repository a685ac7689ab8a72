"""The shape of the repository, and what the documentation names."""

import importlib
import operator
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_operator_and_kernels_are_bare_directories():
    """`operator/__init__.py` would shadow the standard library's module and end Python at its start."""
    assert not (ROOT / "operator/__init__.py").exists()
    assert not (ROOT / "kernels/__init__.py").exists()
    assert Path(operator.__file__).is_relative_to(sys.base_prefix)


def _named_in_walks():
    text = (ROOT / "docs/walks.md").read_text()
    return sorted(set(re.findall(r"`(halogen(?:d|_operator)(?:\.\w+)+)`", text)))


@pytest.mark.parametrize("name", _named_in_walks())
def test_every_function_named_in_the_walks_exists(name):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"{name} cannot be imported")


def test_the_readme_names_files_that_exist():
    text = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_ci_runs_what_the_readme_says():
    assert "make test" in (ROOT / "README.md").read_text()
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and line[0] not in "#sc"]
    assert commands == ["make test"]


def test_the_api_page_lists_every_error_a_client_can_see():
    from halogend.api.errors import ERRORS

    text = (ROOT / "docs/api.md").read_text()
    rows = [f"| `{row.shown or code}` | {row.status} | `{row.explain}` |" for code, row in ERRORS.items()]
    assert [row for row in rows if row not in text] == []


def test_the_page_of_models_names_every_family() -> None:
    from halogend.checkpoint.families import FAMILIES

    rows = [line for line in (ROOT / "docs/models.md").read_text().splitlines() if line.startswith("|")]
    for family in FAMILIES:
        (row,) = [row for row in rows if f"| {family.hf} |" in row]
        assert f"| {family.gguf or 'llama'} |" in row


def test_no_two_test_files_share_a_name() -> None:
    """They are imported by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
