"""Sentencepiece models, written field by field as sentencepiece_model.proto numbers them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path

from support.family_table import Family
from support.family_vocabs import CONTROL, laid_out

BPE, UNIGRAM = 2, 1


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def model_bytes(
    pieces: Iterable[tuple[str, float, int]],
    *,
    kind: int = BPE,
    ids: tuple[int, int, int] = (0, 1, 2),
    dummy_prefix: bool = True,
    collapse_spaces: bool = False,
) -> bytes:
    """`ids` are those of unknown, BOS and EOS."""
    out = b"".join(data(1, data(1, text.encode()) + real(2, score) + number(3, type_)) for text, score, type_ in pieces)
    unknown, bos, eos = ids
    out += data(2, number(3, kind) + number(40, unknown) + number(41, bos) + number(42, eos) + real(10, 0.9995))
    settings = data(1, b"identity") + number(3, dummy_prefix) + number(4, collapse_spaces) + number(5, 1)
    return out + data(3, settings)


def write_sentencepiece(family: Family, directory: Path) -> Path:
    """The family's vocabulary as tokenizer.model, its last tokens as added ones beside it."""
    directory.mkdir(exist_ok=True)
    laid = laid_out(family)
    own = len(laid.tokens) - len(family.last)
    index = {text: token for token, text in enumerate(laid.tokens)}
    types = [CONTROL if text == "</s>" else kind for text, kind in zip(laid.tokens, laid.types, strict=True)]
    pieces = list(zip(laid.tokens[:own], laid.scores[:own], types[:own], strict=True))
    ids = (index["<unk>"], index[family.bos or "<s>"], index[family.eos or "</s>"])
    prefix = family.gguf.get("add_space_prefix", True)
    (directory / "tokenizer.model").write_bytes(model_bytes(pieces, ids=ids, dummy_prefix=prefix))
    placed = [*enumerate(family.first), *enumerate(family.last, start=own)]
    added = {
        str(token): {"content": each.text, "special": each.special, "rstrip": each.rstrip} for token, each in placed
    }
    config = {"added_tokens_decoder": added, "bos_token": family.bos, "eos_token": family.eos}
    config |= {key: value for key, value in family.gguf.items() if key == "add_bos_token"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "config.json").write_text(json.dumps({"model_type": "x", "vocab_size": len(laid.tokens)}))
    return directory
