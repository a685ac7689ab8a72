"""Pages, schema and examples that are made from the code or read by it."""

from pathlib import Path
from typing import Any

import pytest
from support.config_documents import read

from halogend.config import reference
from halogend.config.codes import Code, find, nearest
from halogend.config.json_schema import json_schema
from halogend.config.parse import parse
from halogend.config.parts import Part, pack
from halogend.config.problems import Problem, in_order
from halogend.config.rules import check
from halogend.config.schema import apply_class, fields
from halogend.config.unavailable import LATER

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples/configs").glob("*.yaml"))


@pytest.mark.parametrize(
    ("page", "command", "text"),
    [
        ("config.md", "halogend schema --markdown", reference.config_markdown),
        ("errors.md", "halogend explain --markdown", reference.errors_markdown),
    ],
)
def test_pages_are_what_the_code_writes(page: str, command: str, text: Any) -> None:
    assert (ROOT / "docs" / page).read_text() == text(), f"write it again: {command} > docs/{page}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    parsed = read(path.read_bytes())
    assert check(parsed) == ()
    assert parsed.document is not None
    assert parsed.document.models


def test_the_full_example_names_every_field() -> None:
    text = (ROOT / "examples/configs/full.yaml").read_text()
    missing = [field.path for field in fields() if f"{field.path.rpartition('.')[2]}:" not in text]
    assert missing == []


def test_the_example_of_a_directory_is_valid() -> None:
    folder = ROOT / "examples/directory"
    parts = pack(Part(path.name, path.read_bytes()) for path in folder.iterdir())
    parsed = parse(parts, str(folder), {})
    assert check(parsed) == ()
    assert parsed.document is not None
    assert [model.name for model in parsed.document.models] == ["chat", "code"]
    for path in folder.iterdir():
        assert read(path.read_text()).problems == (), path


def test_every_field_is_described() -> None:
    for field in fields():
        assert field.description.endswith("."), field.path
        assert field.required or field.default is not None or field.unset, field.path


def test_only_leaves_have_a_class() -> None:
    assert apply_class("models[12].kernels.backend") == "generation"
    for path in ("server", "models[0]", "models[0].nope", ""):
        with pytest.raises(KeyError):
            apply_class(path)


def test_every_code_says_what_why_and_what_to_do() -> None:
    assert len({code.value for code in Code}) == len(Code)
    for code in Code:
        assert code.heading
        assert code.heading[0].islower()
        assert code.cause.endswith((".", "`."))
        assert code.remedy.endswith((".", "`."))


@pytest.mark.parametrize("text", ["HCF-1007", "hcf-1007", " HCF1007 "])
def test_a_code_is_found_as_people_type_it(text: str) -> None:
    assert find(text) is Code.UNKNOWN_KEY


def test_near_codes() -> None:
    assert find("HCF-107") is None
    assert Code.UNKNOWN_KEY in nearest("HCF-107")
    assert nearest("HRT")[0].value.startswith("HRT")
    assert nearest("zzz") == ()


def test_a_problem_is_one_line_and_json() -> None:
    problem = Problem(Code.UNKNOWN_KEY, "unknown key 'x'", "did you mean `y`?", "c.yaml", 3, 5, "models[0].x")
    assert str(problem) == "c.yaml:3:5: HCF-1007: unknown key 'x' (did you mean `y`?)"
    assert problem.view() == {
        "code": "HCF-1007",
        "message": "unknown key 'x'",
        "hint": "did you mean `y`?",
        "file": "c.yaml",
        "line": 3,
        "column": 5,
        "path": "models[0].x",
    }
    assert type(problem.view()["code"]) is str
    assert str(Problem(Code.EMPTY_DOCUMENT, "empty", file="c.yaml")) == "c.yaml: HCF-1003: empty"


def test_problems_are_told_once_in_the_order_of_the_file() -> None:
    late, early, nowhere = (Problem("x", "m", line=line, column=1) for line in (9, 2, None))
    assert in_order((late, nowhere, early, late)) == (early, late, nowhere)


def test_the_json_schema_has_every_field_and_no_null() -> None:
    whole = json_schema()
    models = whole["$defs"]["ModelConfig"]["properties"]
    assert whole["$defs"]["Document"]["required"] == ["apiVersion"]
    assert whole["$defs"]["ShortForm"]["required"] == ["model"]
    assert models["kv_cache_bytes"]["anyOf"][1]["type"] == "string"
    assert models["max_batch"]["x-apply"] == "live"
    assert models["flash_attention"]["type"] == "boolean"
    assert models["priority"]["enum"] == [0]
    assert whole["$defs"]["ProbationConfig"]["anyOf"][0] == {"const": "off"}
    assert "name" not in whole["$defs"]["ShortForm"]["properties"]
    for field in fields():
        section, _, key = field.path.rpartition(".")
        if section in {"", "server"}:
            assert key in whole["$defs"]["ServerConfig" if section else "Document"]["properties"]

    def every_part(part: Any) -> list[Any]:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return [part, *(deep for each in inner for deep in every_part(each))]

    parts = every_part(whole)
    assert {"type": "null"} not in parts
    known = {ref["$ref"].rpartition("/")[2] for ref in parts if isinstance(ref, dict) and "$ref" in ref}
    assert known <= set(whole["$defs"])


def test_no_key_is_both_a_field_and_not_available() -> None:
    for model, later in LATER.items():
        assert not set(later) & set(model.model_fields)
