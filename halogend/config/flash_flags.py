"""The flags of `halogen-flash-server`: a document said on a command line.

    flags -> text of a document -> parse, rules, facts as for any file -> problems that name the flag

Owns which flag sets which field. A value is judged by nobody but the schema and the rules; this module
only sees to it that what they say is about a flag, and not about a line of a file nobody wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from halogend.config.nodes import resolve
from halogend.config.parse import parse
from halogend.config.places import ParseResult, Places
from halogend.config.problems import Problem

COMMAND_LINE = "the command line"
_MODEL = "models[0]."


@dataclass(frozen=True, slots=True)
class Flag:
    """`path` is the field in the full form. A flag of text is never read as a number; `bare` is what it
    means without a value, None if it needs one. `also` are fields that it sets besides."""

    name: str
    path: str
    meaning: str
    metavar: str
    is_text: bool = False
    bare: str | None = None
    also: tuple[str, ...] = ()

    @property
    def spelled(self) -> str:
        return f"--{self.name}"

    @property
    def field(self) -> str:
        """The field in the short form, or in an entry of `models`: `sampling.top_p`."""
        return self.path.removeprefix(_MODEL).removeprefix("server.")


# fmt: off
FLAGS = (
    Flag("model-path", "models[0].model", "the checkpoint", "PATH", is_text=True),
    Flag("engine-version", "models[0].engine_version", "keep the defaults of that version", "VERSION", is_text=True),
    Flag("load-format", "models[0].load_format", "format of the checkpoint", "FORMAT", is_text=True),
    Flag("tensor-parallel-size", "models[0].tensor_parallel_size", "devices that share the model", "N",
         also=("models[0].exec_mode",)),
    Flag("max-concurrent-requests", "models[0].max_batch", "requests computed together", "N"),
    Flag("max-model-len", "models[0].max_model_len", "longest prompt and answer together", "TOKENS"),
    Flag("kv-block-pool-autoscale", "models[0].kv_block_pool.autoscale", "whether the KV pool grows and shrinks",
         "auto|true|false", bare="true"),
    Flag("kv-block-pool-min-free-ratio", "models[0].kv_block_pool.min_free_ratio",
         "share of the KV pool kept for short requests", "RATIO"),
    Flag("mmap-threshold", "models[0].mmap_threshold", "share of the weights mapped on demand", "RATIO"),
    Flag("load-thread-num", "models[0].load_thread_num", "threads that read the checkpoint", "auto|N"),
    Flag("temperature", "models[0].sampling.temperature", "default of requests that do not say", "T"),
    Flag("top-p", "models[0].sampling.top_p", "default of requests that do not say", "P"),
    Flag("port", "server.port", "port of the inference listener", "PORT"),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class FlagDocument:
    """The document that flags make. `values` are what stood behind each flag, by its name."""

    values: Mapping[str, str]

    @property
    def data(self) -> bytes:
        """The text of the document, in the short form."""
        return "".join(f"{line}\n" for line, _ in self._lines()).encode()

    def parse(self, data: bytes, file: str, env: Mapping[str, str]) -> ParseResult:
        """`data` is this document's own; problems and places name the flag, or `file` where none is at fault."""
        result = parse(data, file, env)
        places = FlagPlaces(file, result.places.marks, result.places.kept_models, values=self.values)
        by_line = [flag for _, flag in self._lines()]
        problems = tuple(self._named(problem, places, by_line) for problem in result.problems)
        return replace(result, problems=tuple(dict.fromkeys(problems)), places=places)

    def _named(self, problem: Problem, places: FlagPlaces, by_line: list[Flag]) -> Problem:
        if problem.path or problem.line is None:
            return places.problem(problem.code, problem.path, problem.message, problem.hint)
        return replace(problem, file=by_line[problem.line - 1].spelled, line=None, column=None)

    def _entries(self) -> Iterator[tuple[Flag, tuple[str, ...], str]]:
        """(flag, the keys down to its field in the short form, the value as YAML)."""
        for flag in FLAGS:
            text = self.values.get(flag.name)
            if text is None:
                continue
            yield flag, tuple(flag.field.split(".")), _scalar(text, is_text=flag.is_text)
            number = resolve(text)
            if flag.name == "tensor-parallel-size" and isinstance(number, int) and number > 1:
                yield flag, ("exec_mode",), "tensor_parallel"

    def _lines(self) -> Iterator[tuple[str, Flag]]:
        """A line for each key, with the flag it is from; sections of several flags stand together."""
        section = ""
        for flag, keys, value in self._entries():
            if len(keys) > 1 and keys[0] != section:
                yield f"{keys[0]}:", flag
            section = keys[0]
            yield f"{'  ' * (len(keys) - 1)}{keys[-1]}: {value}", flag


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagPlaces(Places):
    """Places on a command line: a problem's file is the flag, which has no lines."""

    values: Mapping[str, str]

    def problem(self, code: str, path: str, message: str, hint: str = "") -> Problem:
        return Problem(code, message, hint, self._flags(path) or self.file, None, None, path)

    def _flags(self, path: str) -> str:
        """The flag that sets the field, whether given or not; of a section, those given."""
        own = [flag for flag in FLAGS for field in (flag.path, *flag.also) if f"{path}.".startswith(f"{field}.")]
        inside = [flag for flag in FLAGS if flag.path.startswith(f"{path}.") and path.startswith(_MODEL)]
        given = [flag for flag in inside if flag.name in self.values]
        return ", ".join(flag.spelled for flag in own or given)


def _scalar(text: str, *, is_text: bool) -> str:
    """As YAML: numbers and booleans as they are, everything else quoted, so that no value changes its type."""
    is_word = is_text or resolve(text) is None or isinstance(resolve(text), str)
    return json.dumps(text) if is_word else text
