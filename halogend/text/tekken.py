"""A vocabulary from Mistral's tekken.json: tokens as base64 bytes by rank, a pattern that cuts words,
special tokens whose ids come first.

A word's bytes are merged by rank as tiktoken does it: any two pieces whose join is a token may merge,
the lowest rank first. Ids and special tokens are laid out as mistral-common's Tekkenizer does, which
begins a text with BOS unless tokenizer_config.json says otherwise.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError, shown
from halogend.checkpoint.json_object import MAX_VOCABULARY_BYTES, parse_json_object
from halogend.checkpoint.tokenizer_files import TextFiles, invalid
from halogend.text import pieces
from halogend.text.merging import MAX_PIECE_LENGTH
from halogend.text.pretokenize import Cutting
from halogend.text.vocabulary import TokenType, Vocabulary, check_surroundings, ends_below, named_ends

_MAX_TOKENS = 1 << 22
# What files from before `special_tokens` was written into them mean by the first ids.
_FIRST_SPECIAL = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
_DEFAULT_SPECIAL_COUNT = 1000


def read_vocabulary(files: TextFiles) -> Vocabulary:
    """Raises CheckpointError naming the key."""
    path = files.vocabulary
    content = parse_json_object(files.read_vocabulary(MAX_VOCABULARY_BYTES), f"{path}:")
    config = content.get("config")
    if not isinstance(config, dict):
        raise invalid(path, "config", "is missing or no object")
    special = _special(path, content, config)
    ranked = _ranked(path, content, _count(path, config, "default_vocab_size", None), len(special))
    texts = tuple(map(pieces.byte_text, ranked))
    tokens = (*special, *texts)
    if files.embedding_rows is not None and len(tokens) > files.embedding_rows:
        raise CheckpointError(
            TOKENIZER_INVALID,
            f"{path}: has {len(tokens)} tokens, but key 'vocab_size' of config.json gives the embedding"
            f" {files.embedding_rows} rows",
        )
    ids = {text: index for index, text in enumerate(special)}
    check_surroundings(files, ids)
    ends = ends_below(files.end_ids, len(tokens)) | named_ends(ids)
    return Vocabulary(
        tokens=tokens,
        types=(TokenType.CONTROL,) * len(special) + (TokenType.NORMAL,) * len(ranked),
        end_ids=frozenset(ends),
        cutting=Cutting((_pattern(path, config),), ignore_merges=True),
        merges=tuple(_merges(ranked, texts)),
        bos_id=ids.get("<s>"),
        eos_id=ids.get("</s>"),
        unknown_id=ids.get("<unk>"),
        add_bos=files.add_bos is not False,
        add_eos=files.add_eos is True,
    )


def _pattern(path: Path, config: Mapping[str, Any]) -> str:
    pattern = config.get("pattern")
    if not isinstance(pattern, str):
        raise invalid(path, "config.pattern", "is missing or no string")
    try:
        tokenizers.Regex(pattern)
    except Exception as error:
        raise invalid(path, "config.pattern", f"is no pattern: {error}") from error
    return pattern


def _count(path: Path, config: Mapping[str, Any], key: str, default: int | None) -> int | None:
    value = config.get(key, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_TOKENS):
        raise invalid(path, f"config.{key}", f"is {shown(value)}; a number of tokens is wanted")
    return value


def _special(path: Path, content: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The special tokens in the order of their ids, filled up to the number that is set aside."""
    listed = content.get("special_tokens")
    if listed is None:
        names, default = list(_FIRST_SPECIAL), _DEFAULT_SPECIAL_COUNT
    else:
        names = _listed_special(path, listed)
        default = len(names)
    count = _count(path, config, "default_num_special_tokens", default) or default
    if count < len(names):
        raise invalid(path, "config.default_num_special_tokens", f"is {count}, but there are {len(names)}")
    return names + [f"<SPECIAL_{index}>" for index in range(len(names), count)]


def _listed_special(path: Path, listed: object) -> list[str]:
    key = "special_tokens"
    if not isinstance(listed, list):
        raise invalid(path, key, "is no list")
    ranks: dict[int, str] = {}
    for index, entry in enumerate(listed):
        rank = entry.get("rank") if isinstance(entry, dict) else None
        text = entry.get("token_str") if isinstance(entry, dict) else None
        if not isinstance(rank, int) or not isinstance(text, str):
            raise invalid(path, f"{key}[{index}]", "has no rank or no token_str")
        if rank in ranks:
            raise invalid(path, f"{key}[{index}]", f"has rank {rank}, as {ranks[rank]!r} has")
        ranks[rank] = text
    if sorted(ranks) != list(range(len(ranks))):
        raise invalid(path, key, "leaves ranks out")
    return [ranks[rank] for rank in range(len(ranks))]


def _ranked(path: Path, content: Mapping[str, Any], size: int | None, special: int) -> list[bytes]:
    """The tokens' bytes in the order of their ranks. More than `size` in all are padding."""
    listed = content.get("vocab")
    if not isinstance(listed, list):
        raise invalid(path, "vocab", "is missing or no list")
    ranked: list[bytes] = []
    for index, entry in enumerate(listed if size is None else listed[: max(size - special, 0)]):
        text = entry.get("token_bytes") if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise invalid(path, f"vocab[{index}]", "has no token_bytes")
        try:
            ranked.append(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError) as error:
            raise invalid(path, f"vocab[{index}].token_bytes", f"is no base64: {error}") from error
        if len(ranked[-1]) > MAX_PIECE_LENGTH:
            raise invalid(path, f"vocab[{index}].token_bytes", f"has {len(ranked[-1])} bytes")
        if entry.get("rank", index) != index:
            raise invalid(path, f"vocab[{index}].rank", f"is {shown(entry['rank'])}, out of order")
    if len(set(ranked)) != len(ranked) or b"" in ranked:
        raise invalid(path, "vocab", "holds a token twice, or an empty one")
    missing = next((byte for byte in range(256) if bytes([byte]) not in set(ranked[:256])), None)
    if missing is not None:
        raise invalid(path, "vocab", f"lacks byte {missing:#04x} among its first 256 tokens")
    return ranked


def _merges(ranked: list[bytes], texts: Sequence[str]) -> list[tuple[str, str]]:
    rank_of = {token: rank for rank, token in enumerate(ranked)}
    merges = []
    for token in ranked:
        splits = [
            (rank_of[left], rank_of[right])
            for cut in range(1, len(token))
            if (left := token[:cut]) in rank_of and (right := token[cut:]) in rank_of
        ]
        merges += [(texts[left], texts[right]) for left, right in sorted(splits)]
    return merges
