"""The one error a checkpoint can give, and its codes."""

from __future__ import annotations

FILE_UNREADABLE = "HCK-1001"  # missing, no permission, a directory where a file is wanted, I/O error
FORMAT_UNKNOWN = "HCK-1002"  # no known magic bytes
FORMAT_CONTRADICTION = "HCK-1003"  # load_format says one thing, the magic bytes another
FORMAT_UNAVAILABLE = "HCK-1004"  # a known format or format version that this build does not read
HEADER_BROKEN = "HCK-1005"  # truncated, or a count, length or value that cannot be
KEY_MISSING = "HCK-1006"  # a metadata key that the model needs is not there
KEY_INVALID = "HCK-1007"  # a metadata key has the wrong type or an impossible value
TENSOR_INVALID = "HCK-1008"  # a table entry is past the end, overlaps, is duplicate or of unknown type
TENSORS_MISMATCH = "HCK-1009"  # tensors are missing, surplus or of a shape the geometry does not give
ARCHITECTURE_UNSUPPORTED = "HCK-1010"
TOKENIZER_UNSUPPORTED = "HCK-1011"

ALL_CODES = (
    FILE_UNREADABLE,
    FORMAT_UNKNOWN,
    FORMAT_CONTRADICTION,
    FORMAT_UNAVAILABLE,
    HEADER_BROKEN,
    KEY_MISSING,
    KEY_INVALID,
    TENSOR_INVALID,
    TENSORS_MISMATCH,
    ARCHITECTURE_UNSUPPORTED,
    TOKENIZER_UNSUPPORTED,
)


class CheckpointError(Exception):
    """A checkpoint that cannot be used: `code` is one of ALL_CODES, `message` names the file and
    the key or tensor, and the remedy where there is one."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
