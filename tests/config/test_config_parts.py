"""A document of several files: what is merged, what clashes, and that each problem names its own file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.config import parts, tree
from halogend.config.canonical import canonical
from halogend.config.codes import Code
from halogend.config.parse import parse
from halogend.config.parts import Part, is_unfinished, pack, unpack
from halogend.config.rules import check

HEAD = "apiVersion: halogen.dev/v1alpha1\n"


def read(**files: str):
    """File names without their ending."""
    return parse(pack([Part(f"{name}.yaml", text.encode()) for name, text in files.items()]), "/etc/h", {})


def problems_of(**files: str) -> list[str]:
    return [str(problem) for problem in check(read(**files))]


def test_sections_are_merged_and_lists_follow_the_names_of_their_files():
    merged = read(
        b=f"{HEAD}models: [{{name: second, model: /b}}]\ndevices: [{{id: 'cpu:0', memory: 8GiB}}]\n",
        a=f"{HEAD}server: {{port: 8001}}\nmodels: [{{name: first, model: /a}}]\n",
        c="server: {host: 127.0.0.1, auth: {keys: [{name: one, file: /k1}]}}\n",
        d="server: {auth: {keys: [{name: two, file: /k2}], overlap_s: 7}}\nreload: {drain_timeout_s: 40}\n",
    ).document
    whole = parse(
        f"""{HEAD}server: {{host: 127.0.0.1, port: 8001, auth: {{overlap_s: 7, keys: [
        {{name: one, file: /k1}}, {{name: two, file: /k2}}]}}}}
devices: [{{id: 'cpu:0', memory: 8GiB}}]
reload: {{drain_timeout_s: 40}}
models: [{{name: first, model: /a}}, {{name: second, model: /b}}]
""".encode(),
        "one.yaml",
        {},
    ).document
    assert merged is not None
    assert merged == whole
    assert canonical(merged) == canonical(whole)


def test_the_short_form_may_stand_in_several_files():
    document = read(
        a="model: /m\n", b="port: 8001\nsampling: {temperature: 0.5}\n", c="sampling: {top_p: 0.5}\n"
    ).document
    assert document is not None
    assert (document.server.port, document.models[0].sampling.temperature) == (8001, 0.5)
    assert document.models[0].sampling.top_p == 0.5


@pytest.mark.parametrize(
    ("first", "second", "place", "there"),
    [
        ("server: {port: 1}\n", "server:\n  port: 1\n", "/etc/h/b.yaml:3:3", "/etc/h/a.yaml:2:10"),
        ("allow_empty: true\n", "allow_empty: true\n", "/etc/h/b.yaml:2:1", "/etc/h/a.yaml:2:1"),
        ("server: {port: 1}\n", "server: [1]\n", "/etc/h/b.yaml:2:1", "/etc/h/a.yaml:2:1"),
    ],
)
def test_the_same_key_twice_names_both_places(first, second, place, there):
    problem = problems_of(a=HEAD + first, b=HEAD + second)[0]
    assert problem.startswith(f"{place}: HCF-1006: the key ")
    assert f"first at {there} " in problem


def test_another_api_version_is_a_clash_and_one_is_enough():
    assert problems_of(a=HEAD + "models: [{name: a, model: /a}]\n", b="allow_empty: false\n") == []
    assert "HCF-1006" in problems_of(a=HEAD, b="apiVersion: other\n")[0]


def test_a_problem_names_the_file_it_is_in_whatever_stands_before():
    files = {
        "a": HEAD + "models:\n- name: chat\n  model: /a\n  max_batch: 0\n",
        "b": "models:\n- name: code\n  model: /b\n- name: chat\n  model: /c\n  modle: x\n",
    }
    found = problems_of(**files)
    assert found[0].startswith("/etc/h/a.yaml:5:14: HCF-1009")
    assert found[-1].startswith("/etc/h/b.yaml:6:3: HCF-1007")
    files["a"] = files["a"].replace("max_batch: 0", "max_batch: 1")
    files["b"] = files["b"].replace("  modle: x\n", "")
    (twice,) = problems_of(**files)
    assert twice.startswith("/etc/h/b.yaml:4:9: ")
    assert "(/etc/h/a.yaml, line 3)" in twice


def test_both_forms_in_two_files_name_both():
    (problem,) = problems_of(a=HEAD + "server: {port: 1}\n", b="model: /m\n")
    assert problem.startswith("/etc/h/b.yaml:1:1: HCF-")
    assert "(/etc/h/a.yaml, line 1)" in problem


def test_a_text_that_cannot_be_read_is_told_alone():
    """What it would have said is missing: nothing else can be judged."""
    (problem,) = problems_of(a=HEAD + "models: [\n", b="max_batchh: 1\n")
    assert problem.startswith("/etc/h/a.yaml:")
    assert "HCF-1005" in problem


@pytest.mark.parametrize("text", ["- a\n", "text\n"])
def test_a_file_is_a_mapping(text):
    (problem,) = problems_of(a=HEAD, b=text)
    assert problem.startswith("/etc/h/b.yaml:1:1: HCF-1008")


def test_a_file_of_comments_says_nothing_and_an_empty_one_is_refused():
    """R2: an empty file is a writer's middle, never a wish."""
    model = HEAD + "models: [{name: a, model: /a}]\n"
    assert problems_of(a=model, b="# later\n") == []
    (problem,) = problems_of(a=model, b=" \n")
    assert problem.startswith("/etc/h/b.yaml: HCF-1003")
    (nothing,) = problems_of(a="# none\n", b="# none\n")
    assert nothing.startswith("/etc/h: HCF-1003")
    assert read().problems[0].code == Code.EMPTY_DOCUMENT


def test_limits_hold_for_all_files_together():
    half = "#" * (tree.MAX_BYTES // 2) + "\n"
    assert read(a=half, b=half).problems[0].code == Code.TOO_LARGE
    many = {key: f"{key}: [&{key} [{'1, ' * 100}], {f'*{key}, ' * 200}]\n" for key in "xyz"}
    assert [problem.code for problem in read(**many).problems] == [Code.TOO_LARGE]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", True),
        (b" \n", True),
        (b"a: 1", False),
        (pack([]), True),
        (pack([Part("a.yaml", b"x: 1"), Part("b.yaml", b"\n")]), True),
        (pack([Part("a.yaml", b"x: 1"), Part("b.yaml", b"#")]), False),
    ],
)
def test_what_is_a_writers_middle(data, expected):
    assert is_unfinished(data) is expected


@given(st.dictionaries(st.text("abc.-é", min_size=1), st.binary()))
def test_files_come_out_as_they_went_in_sorted_by_name(files):
    packed = pack([Part(name, data) for name, data in files.items()])
    assert unpack(packed) == tuple(Part(name, files[name]) for name in sorted(files))


@given(st.binary())
def test_no_bytes_behind_the_mark_raise(data):
    result = parse(parts.pack([])[:-2] + data, "/etc/h", {})
    assert result.document is None
    assert result.problems
