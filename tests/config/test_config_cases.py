"""Golden pairs: a document, a line of dashes, its canonical form or its problems. One file a case."""

from pathlib import Path

import pytest
from support.config_documents import read

from halogend.config.canonical import canonical
from halogend.config.rules import check

CASES = sorted((Path(__file__).parent.parent / "cases/config").glob("*.txt"))
DASHES = "-" * 10 + "\n"


def outcome(text: str) -> str:
    parsed = read(text)
    problems = check(parsed)
    if problems:
        return "".join(f"{problem}\n" for problem in problems)
    assert parsed.document is not None
    return canonical(parsed.document)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_document_gives_what_the_case_says(case: Path) -> None:
    text, _, expected = case.read_text().partition(DASHES)
    assert outcome(text) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_valid_documents_are_their_own_canonical_form(case: Path) -> None:
    text = case.read_text().partition(DASHES)[0]
    document = read(text).document
    if document is None:
        return
    again = read(canonical(document), env={})
    assert again.document == document
    assert canonical(again.document) == canonical(document)


def test_there_are_cases() -> None:
    assert len(CASES) >= 60
