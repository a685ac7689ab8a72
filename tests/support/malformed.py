"""Malformed models, each one edit away from a sound one: what lies in tests/cases/malformed/.

    PYTHONPATH=tests python -m support.malformed tests/cases/malformed

writes every folder's files again, all but `expected.txt`, which is written by hand and begins

    open model.gguf              the stage that must refuse, and what is named: a file, or `.` for the folder
    open . load_format=gguf      the same with a load_format

`open` is `open_checkpoint`, `text` is a text process reading the tokenizer. The second line is the
code, the third the message, with {case} for the folder's path. A sound model has `sound` as its second
line and nothing below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from support import (
    malformed_config,
    malformed_gguf,
    malformed_hf,
    malformed_quantised,
    malformed_split,
    malformed_text,
    malformed_weights,
)
from support.malformed_files import Folder, Link

EXPECTED = "expected.txt"
CASES: Mapping[str, Callable[[], Folder]] = {
    **malformed_gguf.CASES,
    **malformed_split.CASES,
    **malformed_hf.CASES,
    **malformed_config.CASES,
    **malformed_weights.CASES,
    **malformed_quantised.CASES,
    **malformed_text.CASES,
}


@dataclass(frozen=True)
class Expected:
    """`target` is relative to the folder; `message` has {case} in it; both it and `code` are None for a
    sound model."""

    stage: str
    target: str
    load_format: str
    code: str | None
    message: str | None


def read_expected(folder: Path) -> Expected:
    head, code, *rest = (folder / EXPECTED).read_text(encoding="utf-8").splitlines()
    stage, target, *options = head.split(" ")
    load_format = options[0].removeprefix("load_format=") if options else "auto"
    if code == "sound":
        return Expected(stage, target, load_format, None, None)
    return Expected(stage, target, load_format, code, "\n".join(rest))


def write_case(name: str, root: Path) -> Path:
    """The files of one case, in a folder of its name."""
    return write_folder(CASES[name](), root / name)


def write_folder(content: Folder, folder: Path) -> Path:
    for relative, part in content.items():
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(part, Link):
            path.unlink(missing_ok=True)
            path.symlink_to(part.target)
        else:
            path.write_bytes(part)
    return folder


def main(root: Path) -> None:
    for name in CASES:
        write_case(name, root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
