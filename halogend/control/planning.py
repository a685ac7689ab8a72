"""What a document would do here, worked out without doing any of it.

`draft` is the front half of every change and the whole of `check` and `plan`: read, parse, look, check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from halogend.config.canonical import revision
from halogend.config.codes import Code
from halogend.config.facts import FileFact
from halogend.config.parse import parse
from halogend.config.places import ParseResult
from halogend.config.problems import Problem
from halogend.config.rules import check
from halogend.config.schema import Document
from halogend.control.access import Access
from halogend.control.aside import aside
from halogend.control.desired import make_targets
from halogend.control.facts import gather
from halogend.control.machine import Machine
from halogend.control.source import Content, Parse
from halogend.control.target import Target

LOOK_LIMIT_S = 60.0
"""For the files of one document to answer: headers and keys take milliseconds, a slow disk seconds."""


@dataclass(frozen=True, slots=True)
class Given:
    """A document as bytes. `file` is what problems call it; `parse` knows the places in it."""

    content: Content
    file: str
    parse: Parse = parse


@dataclass(frozen=True, slots=True)
class Draft:
    """A document judged against files and machine. Without problems `document` and `revision` are set,
    `wanted` is what it means for each model, and `access` what its keys and certificates hold; `files` is
    what there is to say of those."""

    parsed: ParseResult
    problems: tuple[Problem, ...]
    document: Document | None = None
    revision: str | None = None
    wanted: Mapping[str, Target] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    files: tuple[FileFact, ...] = ()

    def placed(self, problem: Problem) -> Problem:
        """With the line and column of the field it is about; a model's name stands for its `model`."""
        names = [] if self.document is None else [model.name for model in self.document.models]
        path = f"models[{names.index(problem.path)}].model" if problem.path in names else problem.path
        return self.parsed.places.problem(problem.code, path, problem.message, problem.hint)


async def draft(
    given: Given,
    environ: Mapping[str, str],
    machine: Machine,
    in_force: Access,
    when_read: Callable[[Document], None] = lambda _: None,
) -> Draft:
    """Blocking work is done in a thread; nothing is remembered. `in_force` are keys and certificates now. `when_read`
    gets a document that is well formed, before anything that it names is looked at.
    Files that do not answer within LOOK_LIMIT_S are a problem of the document."""
    parsed = await aside(lambda: given.parse(given.content.data, given.file, environ))
    if parsed.document is not None:
        when_read(parsed.document)
    try:
        return await aside(lambda: _draft(parsed, machine, in_force), LOOK_LIMIT_S)
    except TimeoutError:
        return Draft(parsed, (_unanswered(parsed, given.file),))


def _unanswered(parsed: ParseResult, file: str) -> Problem:
    models = () if parsed.partial is None else parsed.partial.models
    names = ", ".join(dict.fromkeys(model.model for model in models)) or "keys and certificates"
    text = f"the files that this document names did not answer within {LOOK_LIMIT_S:g} s: {names}"
    return Problem(Code.CHECKPOINT_UNREADABLE, text, "look for a mount whose server is gone", file)


def _draft(parsed: ParseResult, machine: Machine, in_force: Access) -> Draft:
    gathered = None if parsed.partial is None else gather(parsed.partial, machine, in_force)
    problems = check(parsed, None if gathered is None else gathered.facts)
    document = parsed.document
    if problems or document is None or gathered is None:
        return Draft(parsed, problems, files=() if gathered is None else gathered.facts.files)
    files = gathered.facts.files
    wanted = make_targets(document, gathered)
    return Draft(parsed, (), document, revision(document), wanted, gathered.access, files)
