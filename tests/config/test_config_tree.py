"""Bytes that are no good document, and limits of size and depth."""

import pytest
from support.config_documents import HEAD, MODEL, read

from halogend.config.codes import Code
from halogend.config.nodes import resolve
from halogend.config.rules import MOST_TOLD, check
from halogend.config.tree import MAX_BYTES


def only(data: bytes | str) -> tuple[str, int | None, int | None]:
    parsed = read(data)
    assert parsed.document is None
    assert parsed.partial is None
    (problem,) = parsed.problems
    return problem.code, problem.line, problem.column


@pytest.mark.parametrize(
    ("data", "code", "line", "column"),
    [
        (b"", Code.EMPTY_DOCUMENT, None, None),
        (b"\n \n# a\n", Code.EMPTY_DOCUMENT, None, None),
        (b"\xef\xbb\xbf", Code.EMPTY_DOCUMENT, None, None),
        (b"model: /a\nport: \xff\n", Code.NOT_UTF8, 2, 7),
        ("model: /é\n".encode() + b"\xc3", Code.NOT_UTF8, 2, 1),
        ("model: /a".encode("utf-16"), Code.NOT_UTF8, 1, 1),
        ("model: /a".encode("utf-32"), Code.NOT_UTF8, 1, 1),
        (b"model: /a\n\x00\x00\x00", Code.CONTROL_CHARACTER, 2, 1),
        (b"model: /\x1b[31m", Code.CONTROL_CHARACTER, 1, 9),
        (b'model: "/a\\0b"', Code.CONTROL_CHARACTER, 1, 8),
        (b'{"model": "/\\ud83d"}', Code.CONTROL_CHARACTER, 1, 11),
        (b"#" * (MAX_BYTES + 1), Code.TOO_LARGE, None, None),
        (b'model: "\\UFFFFFFFF"', Code.SYNTAX, 1, 1),
        (b"%YAML 99999999999999999999.1\n---\nmodel: /a", Code.SYNTAX, 1, 1),
        (b"model: *a", Code.SYNTAX, 1, 8),
        (b"*a : b", Code.SYNTAX, 1, 1),
        (b"a: &a b\n*a : c", Code.YAML_FEATURE, 2, 1),
        (b"{" * 5000, Code.YAML_FEATURE, 1, 2),
        (b"a: " + b"[" * 5000, Code.TOO_DEEP, 1, 35),
        (b"- " * 5000, Code.TOO_DEEP, 1, 65),
        (b"model: !path /a", Code.YAML_FEATURE, 1, 8),
        (b"model: !!str /a", Code.YAML_FEATURE, 1, 8),
    ],
)
def test_unreadable_bytes_are_one_problem_with_a_place(
    data: bytes, code: Code, line: int | None, column: int | None
) -> None:
    assert only(data) == (code, line, column)


def test_aliases_cannot_be_nested_deeper_than_brackets() -> None:
    steps = "\n".join(f"k{i}: &k{i} [*k{i - 1}]" for i in range(1, 40))
    assert only(f"k0: &k0 []\n{steps}\n")[0] == Code.TOO_DEEP


def test_a_utf8_byte_order_mark_is_skipped() -> None:
    plain, marked = read(HEAD + MODEL), read(b"\xef\xbb\xbf" + (HEAD + MODEL).encode())
    assert marked.document == plain.document is not None


def test_windows_line_ends_change_nothing() -> None:
    assert read((HEAD + MODEL).replace("\n", "\r\n")).document == read(HEAD + MODEL).document is not None


def test_no_file_name_no_place_and_no_hint_are_left_out_of_the_line() -> None:
    (problem,) = read(b"").problems
    assert str(problem).startswith("HCF-1003: ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-7", -7),
        ("0.5", 0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        *((text, text) for text in ("True", "yes", "on", "off", "NO", "Null", "010", "0x1f", "0o7", "1_000", "1:30")),
        *((text, text) for text in (".inf", ".nan", "e5", ".", "+", "-", "1.2.3", "2024-01-01", "=")),
    ],
)
def test_unquoted_text_is_read_without_the_surprises_of_yaml_1_1(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


def test_a_file_that_is_wrong_from_end_to_end_is_not_told_in_full() -> None:
    problems = check(read("model: /a.gguf\n" + "".join(f"k{i}: 1\n" for i in range(500))))
    assert len(problems) == MOST_TOLD + 1
    assert problems[0].line == 2
    assert str(problems[-1]) == "HCF-1019: 300 more problems are not shown (mend these first)"


def test_long_values_are_shortened_in_messages() -> None:
    (problem,) = check(read(f"model: /a.gguf\nload_format: {'x' * 9000}\n"))
    assert len(str(problem)) < 200
