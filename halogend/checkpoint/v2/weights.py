"""Whether entries are the model that the geometry describes, and its weights as the engine asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from halogend.checkpoint.errors import shown
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.inventory import Wanted, wanted_weights
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.stored import Encoded, Plain, RowFp8, RowInt8, TiledInt4, Weight, whole
from halogend.checkpoint.tokenizer_files import VOCABULARIES
from halogend.checkpoint.v2.entries import TEXT_PREFIX, Entry
from halogend.checkpoint.v2.index import TextKind
from halogend.checkpoint.v2.layout import ROW, ROW_FP8, ROW_INT8
from halogend.checkpoint.v2.rules import broken
from halogend.checkpoint.v2.shards import shard_of

MAX_TEXT_BYTES = 256 << 20
GGUF_TEXT = f"{TEXT_PREFIX}gguf"
_VOCABULARIES = tuple(f"{TEXT_PREFIX}{name}" for name in VOCABULARIES)
TEXT_NAMES: Mapping[TextKind, frozenset[str]] = {
    "gguf": frozenset({GGUF_TEXT}),
    "files": frozenset(
        {
            *_VOCABULARIES,
            *(
                f"{TEXT_PREFIX}{name}"
                for name in (
                    "config.json",
                    "generation_config.json",
                    "tokenizer_config.json",
                    "special_tokens_map.json",
                    "added_tokens.json",
                    "chat_template.jinja",
                    "chat_templates/default.jinja",
                )
            ),
        }
    ),
}


def find(model: Geometry, entries: Sequence[Entry], path: Path) -> Mapping[str, Weight]:
    """Each weight by its name in the inventory's order. Raises CheckpointError: rules V2-27 to V2-31."""
    stored = {entry.name: entry for entry in entries if not entry.is_text}
    weights: dict[str, Weight] = {}
    for wanted in wanted_weights(model):
        if (entry := stored.pop(wanted.name, None)) is None:
            raise broken("V2-27", path, f"tensor {wanted.name!r} is missing")
        _check_entry(model, wanted, entry, path)
        weights[wanted.name] = whole(encoded_of(entry))
    for name in stored:
        what = f"has no place in the model that the metadata describes ({model.architecture}, layers: {model.layers})"
        raise broken("V2-28", path, f"tensor {shown(name)} {what}")
    return weights


def check_text(kind: TextKind, entries: Sequence[Entry], path: Path) -> None:
    """Whether what a text process reads is there, and nothing else. Raises CheckpointError: rules V2-32 and V2-33."""
    names = set()
    for entry in entries:
        if entry.is_text and entry.name not in TEXT_NAMES[kind]:
            known = ", ".join(sorted(TEXT_NAMES[kind]))
            raise broken("V2-32", path, f"{shown(entry.name)} is no text of kind {kind}; known are {known}")
        if entry.is_text and entry.nbytes > MAX_TEXT_BYTES:
            what = f"{entry.name!r} has {entry.nbytes} bytes, more than the {MAX_TEXT_BYTES} accepted"
            raise broken("V2-32", path, what)
        names.add(entry.name)
    tokenizers = (GGUF_TEXT,) if kind == "gguf" else _VOCABULARIES
    if not names.intersection(tokenizers):
        raise broken("V2-33", path, f"has no tokenizer; one of {', '.join(tokenizers)} is wanted")


def _check_entry(model: Geometry, wanted: Wanted, entry: Entry, path: Path) -> None:
    shape, name = (wanted.rows,) if wanted.columns == 1 else (wanted.rows, wanted.columns), f"tensor {entry.name!r}"
    if entry.shape != shape:
        what = f"has shape {list(entry.shape)}; the metadata's model gives {list(shape)}"
        raise broken("V2-29", path, f"{name} {what}")
    if len(shape) == 1 and entry.dtype is not PlainType.F32:
        raise broken("V2-30", path, f"{name} is a vector of {entry.dtype.label}; F32 is wanted")
    if entry.shard != (right := shard_of(model, entry.name, entry.layout, entry.block)):
        what = f"is shared out by {entry.shard.unit} along axis {entry.shard.axis}"
        raise broken("V2-31", path, f"{name} {what}; {right.unit} along {right.axis} is wanted")


def encoded_of(entry: Entry) -> Encoded:
    """The matrix or vector that a weight's entry is."""
    if entry.layout == ROW:
        return Plain(entry.tensor)
    if entry.layout == ROW_INT8:
        return RowInt8(entry.tensor, entry.planes)
    if entry.layout == ROW_FP8:
        return RowFp8(entry.tensor, entry.planes)
    return TiledInt4(entry.tensor, entry.planes, entry.block)
