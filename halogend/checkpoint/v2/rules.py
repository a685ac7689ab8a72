"""The rules of the format by their numbers in docs/checkpoint-v2.md: each has one error code and one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError

RULES: Mapping[str, str] = MappingProxyType(
    {
        "V2-01": errors.FORMAT_UNKNOWN,
        "V2-02": errors.TRUNCATED,
        "V2-03": errors.DIGEST_MISMATCH,
        "V2-04": errors.VERSION_UNSUPPORTED,
        "V2-05": errors.VERSION_UNSUPPORTED,
        "V2-06": errors.INDEX_INVALID,
        "V2-07": errors.VERSION_UNSUPPORTED,
        "V2-08": errors.TRUNCATED,
        "V2-09": errors.INDEX_INVALID,
        "V2-10": errors.INDEX_INVALID,
        "V2-11": errors.INDEX_INVALID,
        "V2-12": errors.DIGEST_MISMATCH,
        "V2-13": errors.INDEX_INVALID,
        "V2-14": errors.KEY_INVALID,
        "V2-15": errors.KEY_INVALID,
        "V2-16": errors.ARCHITECTURE_UNSUPPORTED,
        "V2-17": errors.KEY_INVALID,
        "V2-18": errors.TYPE_UNSUPPORTED,
        "V2-19": errors.TYPE_UNSUPPORTED,
        "V2-20": errors.INDEX_INVALID,
        "V2-21": errors.INDEX_INVALID,
        "V2-22": errors.INDEX_INVALID,
        "V2-23": errors.INDEX_INVALID,
        "V2-24": errors.TRUNCATED,
        "V2-25": errors.INDEX_INVALID,
        "V2-26": errors.INDEX_INVALID,
        "V2-27": errors.TENSOR_MISSING,
        "V2-28": errors.TENSOR_MISMATCH,
        "V2-29": errors.TENSOR_MISMATCH,
        "V2-30": errors.TYPE_UNSUPPORTED,
        "V2-31": errors.SHARD_INVALID,
        "V2-32": errors.TOKENIZER_INVALID,
        "V2-33": errors.TOKENIZER_INVALID,
        "V2-34": errors.SPLIT_INVALID,
        "V2-35": errors.SPLIT_INVALID,
        "V2-36": errors.SPLIT_INVALID,
        "V2-37": errors.SPLIT_INVALID,
        "V2-38": errors.SPLIT_INVALID,
        "V2-39": errors.DIGEST_MISMATCH,
        "V2-40": errors.DIGEST_MISMATCH,
        "V2-41": errors.INDEX_INVALID,
    }
)


def broken(rule: str, path: Path, what: str) -> CheckpointError:
    """The error of a file that breaks `rule`: `what` is a sentence's end."""
    return CheckpointError(RULES[rule], f"{path}: {what} ({rule})")
