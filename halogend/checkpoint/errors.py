"""The one error a checkpoint can give, its codes, and how its message quotes a value."""

from __future__ import annotations

import reprlib

_MOST_SHOWN = 60  # characters

FORMAT_UNKNOWN = "HCK-1001"  # no magic bytes of a format that this release reads
FORMAT_CONTRADICTION = "HCK-1002"  # load_format says one thing, the magic bytes another
TRUNCATED = "HCK-1003"  # shorter than its header says
KEY_INVALID = "HCK-1004"  # a metadata key is missing, of the wrong type or of an impossible value
ARCHITECTURE_UNSUPPORTED = "HCK-1005"
TYPE_UNSUPPORTED = "HCK-1006"  # a tensor's storage type
TENSOR_MISSING = "HCK-1007"
TENSOR_MISMATCH = "HCK-1008"  # surplus, or of a shape that the geometry does not give
TOKENIZER_INVALID = "HCK-1009"  # broken, or of a kind that is not supported
FILE_UNREADABLE = "HCK-1010"  # missing, no permission, a directory where a file is wanted, I/O error
INDEX_INVALID = "HCK-1011"  # the tensor table: overlaps, duplicates, misplaced entries
VERSION_UNSUPPORTED = "HCK-1012"  # version or byte order of the format
SPLIT_INVALID = "HCK-1013"  # parts of a split model that do not belong together, or not the first named
SHARD_INVALID = "HCK-1014"  # a tensor-parallel size that the weights do not divide by
DIGEST_MISMATCH = "HCK-1015"  # bytes are not those that were written
NO_SPACE = "HCK-1016"  # what is to be written does not fit
UNWRITABLE = "HCK-1017"  # the file system refuses a write

ALL_CODES = (
    FORMAT_UNKNOWN,
    FORMAT_CONTRADICTION,
    TRUNCATED,
    KEY_INVALID,
    ARCHITECTURE_UNSUPPORTED,
    TYPE_UNSUPPORTED,
    TENSOR_MISSING,
    TENSOR_MISMATCH,
    TOKENIZER_INVALID,
    FILE_UNREADABLE,
    INDEX_INVALID,
    VERSION_UNSUPPORTED,
    SPLIT_INVALID,
    SHARD_INVALID,
    DIGEST_MISMATCH,
    NO_SPACE,
    UNWRITABLE,
)


class CheckpointError(Exception):
    """A checkpoint that cannot be used: `code` is one of ALL_CODES, `message` names the file and
    the key or tensor, and the remedy where there is one."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def shown(value: object) -> str:
    """A value of a file as a message quotes it: on one line and in up to 60 characters, without writing
    all of a large one first."""
    quote = reprlib.Repr()
    quote.maxstring = quote.maxlong = quote.maxother = _MOST_SHOWN
    quote.maxlevel = 3
    return f"{quote.repr(value):.{_MOST_SHOWN}}"
