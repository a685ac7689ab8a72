"""The document a command line names: a file, a directory of files, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

DOCUMENT_HELP = "the document: a file, or a directory whose *.yaml are merged; - reads standard input"


class UnreadableError(Exception):
    """It cannot be read; says which path and why."""


def read_document(file: str) -> tuple[bytes, str]:
    """The bytes as the daemon would take them, and what problems call them. Raises UnreadableError."""
    from halogend.control.source import SourceError
    from halogend.control.source_files import read_content

    if file == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    path = Path(file)
    try:
        return (read_content(path).data if path.is_dir() else path.read_bytes()), file
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from error
    except SourceError as error:
        raise UnreadableError(str(error)) from error
