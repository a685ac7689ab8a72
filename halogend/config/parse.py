"""Bytes of a document -> the document, or every problem of its text and values.

    bytes -> tree (places) -> shape (keys, both forms) -> schema (values) -> document
    bytes of several files -> their trees -> one tree (parts)

Contradictions between fields are the rules' business. Nothing a user may write raises here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from halogend.config import parts, tree
from halogend.config.codes import Code
from halogend.config.findings import Findings
from halogend.config.nodes import Node
from halogend.config.places import ParseResult, Places
from halogend.config.problems import Problem, in_order
from halogend.config.profiles import pinned
from halogend.config.refusals import report_refusal
from halogend.config.schema import Document, ModelConfig, ModelReloadConfig
from halogend.config.shape import shape


def parse(data: bytes, file: str, env: Mapping[str, str]) -> ParseResult:
    """Reads one document, of one file or of several (`parts.pack`). `file` names it in problems, of several
    their directory; `env` is what `${NAME}` in paths is taken from."""
    root, problems = _read(data, file)
    if root is None:
        return ParseResult(None, None, in_order(problems), Places(file))
    findings = Findings(file, env, list(problems))
    plain = shape(root, findings)
    document = _validated(plain, findings)
    if document is not None and not findings.problems:
        return ParseResult(document, document, (), Places(file, findings.marks))
    partial, kept = _partial(plain, findings)
    places = Places(file, findings.marks, kept)
    return ParseResult(None, partial, in_order(tuple(findings.problems)), places)


def _read(data: bytes, file: str) -> tuple[Node | None, tuple[Problem, ...]]:
    try:
        files = parts.unpack(data)
    except ValueError as error:
        return None, (Problem(Code.CONTROL_CHARACTER, str(error), "send it again", file),)
    return tree.read(data, file) if files is None else parts.read(files, file)


def _validated(plain: dict[str, Any], findings: Findings) -> Document | None:
    """The document, or None with the refused values reported."""
    try:
        return _concrete(Document.model_validate(plain))
    except ValidationError as error:
        reported = {problem.path for problem in findings.problems}
        for path, details in _by_path(error, findings).items():
            if not any(_is_inside(seen, path) or _is_inside(path, seen) for seen in reported):
                report_refusal(path, details, findings)
        return None


def _by_path(error: ValidationError, findings: Findings) -> dict[str, list[ErrorDetails]]:
    """The schema's errors by the innermost written field each belongs to; a union gives several for one."""
    grouped: dict[str, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        path = best = ""
        for step in details["loc"]:
            path = f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}".lstrip(".")
            best = path if path in findings.marks else best
        grouped.setdefault(path if details["type"] == "missing" else best, []).append(details)
    return {  # a list whose entries were refused also counts as too short
        path: details
        for path, details in grouped.items()
        if not (
            details[0]["type"] == "too_short" and any(other != path and _is_inside(other, path) for other in grouped)
        )
    }


def _is_inside(path: str, around: str) -> bool:
    return path == around or path.startswith((f"{around}.", f"{around}["))


def _concrete(document: Document) -> Document:
    """What a model does not say filled in: from its engine_version, and its reload from the document's."""

    def inherited(model: ModelConfig) -> ModelConfig:
        own = model.reload.model_dump(include=model.reload.model_fields_set)
        common = document.reload.model_dump(include=set(ModelReloadConfig.model_fields))
        return model.model_copy(update={"reload": ModelReloadConfig(**{**common, **own})})

    return document.model_copy(update={"models": tuple(inherited(model) for model in pinned(document).models)})


def _partial(plain: dict[str, Any], findings: Findings) -> tuple[Document | None, tuple[int, ...]]:
    """The document without the models and sections that have a fault, and which models it kept."""
    if not plain:
        return None, ()
    bad = {problem.path for problem in findings.problems}
    models = plain.get("models", ())
    kept = tuple(i for i in range(len(models)) if not any(_is_inside(path, f"models[{i}]") for path in bad))
    sound = {
        key: value for key, value in plain.items() if key != "models" and not any(_is_inside(path, key) for path in bad)
    }
    try:
        partial = Document.model_validate({**sound, "models": tuple(models[i] for i in kept), "allow_empty": True})
    except ValidationError:  # a fault that has no place of its own, such as too many models
        return None, ()
    return _concrete(partial), kept
