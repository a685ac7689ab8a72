"""Golden pairs: a command line, a line of dashes, the document it makes or its problems. One file a case."""

import shlex
from pathlib import Path

import pytest
from support.config_documents import read

from halogend.cli.flash_arguments import arguments
from halogend.config.canonical import canonical
from halogend.config.facts import DeviceFacts, Facts, Fault, KvFacts, ModelFacts
from halogend.config.flash_flags import COMMAND_LINE, FLAGS, FlagDocument
from halogend.config.rules import check

CASES = sorted((Path(__file__).parent.parent / "cases/flash").glob("*.txt"))
DASHES = "-" * 10 + "\n"


def parsed(*words):
    document = FlagDocument(arguments(words).values)
    return document.parse(document.data, COMMAND_LINE, {"MODELS": "/srv/models"})


def outcome(*words):
    result = parsed(*words)
    problems = check(result)
    return "".join(f"{problem}\n" for problem in problems) if problems else canonical(result.document)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_command_line_gives_what_the_case_says(case):
    line, _, expected = case.read_text().partition(DASHES)
    assert outcome(*shlex.split(line)) == expected


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_each_flag_has_a_golden_document_and_a_bad_value(flag):
    lines = {case.stem: case.read_text().partition(DASHES)[0] for case in CASES}
    assert flag.spelled in lines[flag.name]
    assert flag.spelled in lines[f"bad-{flag.name}"]


@pytest.mark.parametrize("case", [case for case in CASES if case.stem.startswith("bad-")], ids=lambda path: path.stem)
def test_every_problem_names_a_flag_of_the_line_and_no_place(case):
    line = case.read_text().partition(DASHES)[0]
    problems = check(parsed(*shlex.split(line)))
    assert problems
    for problem in problems:
        assert set(problem.file.split(", ")) <= set(line.split())
        assert (problem.line, problem.column) == (None, None)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_the_document_of_a_line_is_the_document_of_its_print(case):
    result = parsed(*shlex.split(case.read_text().partition(DASHES)[0]))
    if result.document is not None:
        again = read(canonical(result.document), env={})
        assert again.document == result.document


def test_underscores_and_equals_signs_make_no_difference():
    words = ["--model-path", "/m/a_b.gguf", "--max-concurrent-requests", "8", "--top-p", "0.5"]
    other = ["--model_path=/m/a_b.gguf", "--max_concurrent_requests=8", "--top_p=0.5"]
    assert outcome(*words) == outcome(*other)
    assert "/m/a_b.gguf" in outcome(*other)


def test_text_stays_text_and_paths_keep_what_they_are_made_of():
    for path in ("8000", "true", "a: b #c", 'qu"ote', "ünï", "new\nline", "{x}", "- a", "😀"):
        assert parsed("--model-path", path).document.models[0].model == path


@pytest.mark.parametrize("path", ["a\x01b", "a\udcffb", "a\x7fb"])
def test_what_no_document_may_hold_is_the_flags_fault(path):
    (problem,) = check(parsed("--port", "80", "--model-path", path))
    assert (problem.file, problem.line) == ("--model-path", None)


def test_facts_are_told_of_the_flag_too():
    """What is learnt from the machine names the flag that can mend it, whether it was given or not."""
    result = parsed("--model-path", "/m/a.gguf", "--max-model-len", "9000")
    gone = Facts(models={"default": ModelFacts(fault=Fault("HCK-1010", "gone", "mend the path"))})
    assert [str(each) for each in check(result, gone)] == ["--model-path: HCK-1010: gone (mend the path)"]
    short = Facts(models={"default": ModelFacts(format="gguf", context_length=8192)})
    assert [each.file for each in check(result, short)] == ["--max-model-len"]
    none_fits = Facts(
        models={
            "default": ModelFacts(
                format="gguf", context_length=8192, weight_bytes=1, kv=KvFacts(16 << 20, (None,), 512)
            )
        },
        devices=(DeviceFacts(id="cpu:0", memory_bytes=1 << 30, reserve_bytes=0),),
    )
    result = parsed("--model-path", "/m/a.gguf")
    assert [each.file for each in check(result, none_fits)] == ["--max-model-len"]


def test_where_no_flag_is_at_fault_the_line_is():
    places = parsed("--model-path", "/m/a.gguf").places
    assert places.problem("X", "models[0]", "m").file == COMMAND_LINE
    assert places.problem("X", "server.admin", "m").file == COMMAND_LINE
    assert places.problem("X", "", "m").file == COMMAND_LINE
    assert places.problem("X", "server.port", "m").file == "--port"


def test_only_the_part_of_a_section_that_is_at_fault_is_named():
    words = ["--model-path", "/a.gguf", "--kv-block-pool-autoscale", "auto", "--kv-block-pool-min-free-ratio", "0.6"]
    assert [each.file for each in check(parsed(*words))] == ["--kv-block-pool-min-free-ratio"]


def test_a_bare_switch_is_true_and_takes_no_other_flag_for_its_value():
    assert arguments(["--kv-block-pool-autoscale", "--model-path", "/a"]).values == {
        "kv-block-pool-autoscale": "true",
        "model-path": "/a",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--model-path PATH is missing"),
        (["--port", "80"], "--model-path PATH is missing"),
        (["--model-path"], "--model-path"),
        (["--model-path", "/a", "b"], "'b' belongs to no flag"),
        (["--model-path", "/a", "--max-conccurent-requests", "4"], "did you mean --max-concurrent-requests?"),
        (["--model-path", "/a", "--max_batch=4"], "did you mean --max-concurrent-requests?"),
        (["--model-path", "/a", "--device", "cpu"], "`device`; it is a field of a document"),
        (["--model-path", "/a", "--zzz"], "unknown flag --zzz, --help lists"),
        (
            ["--model-path", "/a", "--prt", "1", "--tmperature", "1"],
            "--prt, did you mean --port?; unknown flag --tmper",
        ),
        (["--model-path", "/a", "--port", "1", "--port=2"], "--port stands 2 times: 1, 2"),
        (["--model", "/a"], "did you mean --model-path?"),
        (["--config", "/a.yaml", "--top_p", "1", "--port", "2"], "--top-p as `sampling.top_p`, --port as `port`"),
    ],
)
def test_usage_errors(words, said, capsys):
    with pytest.raises(SystemExit) as raised:
        arguments(words)
    assert raised.value.code == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_there_are_cases():
    assert len(CASES) >= 2 * len(FLAGS)
