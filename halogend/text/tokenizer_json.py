"""A tokenizer from tokenizer.json (BPE), as `transformers` makes a fast tokenizer of it.

What the file says is used as it is written: the settings beside it only add tokens that it lacks, and
BOS and EOS stand where its post-processor puts them, whatever `add_bos_token` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from halogend.checkpoint.errors import shown
from halogend.checkpoint.json_object import MAX_VOCABULARY_BYTES, parse_json_object
from halogend.checkpoint.tokenizer_files import AddedToken, TextFiles, invalid
from halogend.text import pieces
from halogend.text.assembly import assembled
from halogend.text.lexicon import Lexicon
from halogend.text.tokenizer_faults import explained, steps
from halogend.text.vocabulary import check_surroundings, ends_below, named_ends
from halogend.text.whole_text import WholeEncoder, plain_engine

_BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_NFC_FACTOR = 4  # composition leaves no fewer of a text's bytes: 2 of 7 is the least, for U+1FBE U+0308 U+0301
# Normalisers that drop nothing, and ways to cut words that drop nothing.
_KEEPING = frozenset({"NFC", "Prepend", "Replace"})
_CUTTING = frozenset({"ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"})
_DECODERS = {"ByteLevel": True, "ByteFallback": False, "Metaspace": False}


def build(files: TextFiles) -> tuple[Lexicon, WholeEncoder]:
    """Raises CheckpointError naming the key, and the package's bare Exception for what is broken in
    a way that has no name here."""
    path = files.vocabulary
    content = parse_json_object(files.read_vocabulary(MAX_VOCABULARY_BYTES), f"{path}:")
    vocab = _checked_vocab(path, content, files.embedding_rows)
    _drop_beyond(content, files.embedding_rows)
    _check_added(path, content, vocab)
    listed = {token["content"] for token in _listed_added(content)} | {token.content for token in files.added.values()}
    check_surroundings(files, vocab.keys() | listed)
    engine = _engine(path, content)
    _add_settings(files, engine, vocab)
    _check_ids(path, content, files, engine)
    added = engine.get_added_tokens_decoder()
    control = {token.content: index for index, token in added.items() if token.special}
    is_byte_level = _is_byte_level(path, content)
    prefix, suffix = _surroundings(content, engine)
    size = 1 + max([*vocab.values(), *added])
    tokens, token_pieces = _by_id(size, vocab, added, is_byte_level=is_byte_level)
    lexicon = Lexicon(
        tokens=tokens,
        pieces=token_pieces,
        control=control,
        end_ids=_end_ids(files, control, max(size, files.embedding_rows or 0)),
        named={name: token.content for name, token in files.special.items()},
        prefix=prefix,
        suffix=suffix,
        chat_prefix=False,
        longest_bytes=_shrinking(content, vocab, is_byte_level=is_byte_level)
        * pieces.longest_bytes(tokens, token_pieces, is_byte_level=is_byte_level),
        absorbs_spaces=any(token.lstrip or token.rstrip for token in added.values()),
    )
    return lexicon, WholeEncoder(engine, plain_engine(engine, content, control), control)


# --- what the file says ---------------------------------------------------------------------------


def _checked_vocab(path: Path, content: Mapping[str, Any], rows: int | None) -> dict[str, int]:
    model = content.get("model")
    if not isinstance(model, dict):
        raise invalid(path, "model", "is missing or no object")
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise invalid(path, "model.type", f"is {shown(kind)}; only 'BPE' is supported")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise invalid(path, "model.vocab", "is missing, empty or no object")
    taken: dict[int, str] = {}
    for text, index in vocab.items():
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise invalid(path, "model.vocab", f"gives {shown(text)} the id {shown(index)}")
        if index in taken:
            raise invalid(path, "model.vocab", f"gives {shown(taken[index])} and {shown(text)} one id, {index}")
        if rows is not None and index >= rows:
            limit = f"'vocab_size' of config.json gives the embedding {rows} rows"
            raise invalid(path, "model.vocab", f"gives {shown(text)} the id {shown(index)}, but {limit}")
        taken[index] = text
    return vocab


def _listed_added(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [token for token in content.get("added_tokens") or [] if isinstance(token, dict)]


def _drop_beyond(content: dict[str, Any], rows: int | None) -> None:
    """Added tokens that no embedding belongs to can stand in no text. (Text models that were made from
    one with images list some.)"""
    listed = content.get("added_tokens")
    if rows is not None and isinstance(listed, list):
        content["added_tokens"] = [
            token
            for token in listed
            if not (isinstance(token, dict) and isinstance(token.get("id"), int) and token["id"] >= rows)
        ]


def _check_added(path: Path, content: Mapping[str, Any], vocab: Mapping[str, int]) -> None:
    key = "added_tokens"
    listed = content.get(key) or []
    if not isinstance(listed, list):
        raise invalid(path, key, "is no list")
    by_id = {index: text for text, index in vocab.items()}
    for position, token in enumerate(listed):
        if not (isinstance(token, dict) and isinstance(token.get("id"), int) and isinstance(token.get("content"), str)):
            raise invalid(path, f"{key}[{position}]", "has no id or no content")
        other = by_id.setdefault(token["id"], token["content"])
        if other != token["content"]:
            raise invalid(
                path, f"{key}[{position}]", f"gives {shown(token['content'])} the id {token['id']} of {shown(other)}"
            )


def _engine(path: Path, content: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        return assembled(content)
    except Exception as error:  # the package raises bare Exception
        raise explained(path, content, error) from error


# --- what the settings beside it add --------------------------------------------------------------


def _add_settings(files: TextFiles, engine: tokenizers.Tokenizer, vocab: Mapping[str, int]) -> None:
    """As `transformers` adds them: tokens that the file has otherwise or not at all, by id, then special
    tokens that it does not have."""
    present = engine.get_added_tokens_decoder()
    known = {repr(token) for token in present.values()}
    names = {token.content for token in files.special.values()}
    wanted = [_package_token(token, names) for _, token in sorted(files.added.items())]
    fresh = [token for token in wanted if repr(token) not in known]
    texts = {token.content for token in present.values()} | {token.content for token in fresh}
    for extra in (*files.special.values(), *files.extra):
        if extra.content not in texts:
            texts.add(extra.content)
            fresh.append(_package_token(extra, {extra.content}))
    rows = files.embedding_rows
    room = None if rows is None else rows - engine.get_vocab_size()
    for token in fresh:
        if token.content in vocab or token.content in {each.content for each in present.values()}:
            engine.add_tokens([token])
        elif room is None or room > 0:  # others have no embedding
            engine.add_tokens([token])
            room = None if room is None else room - 1


def _package_token(token: AddedToken, special: set[str]) -> tokenizers.AddedToken:
    made = tokenizers.AddedToken(token.content, **token.flags)
    if token.content in special and not made.special:
        made.special = True
    return made


def _check_ids(path: Path, content: Mapping[str, Any], files: TextFiles, engine: tokenizers.Tokenizer) -> None:
    """The package numbers added tokens without gaps, whatever the file says."""
    for position, token in enumerate(_listed_added(content)):
        found = engine.token_to_id(token["content"])
        if found != token["id"]:
            raise invalid(
                path,
                f"added_tokens[{position}].id",
                f"is {token['id']} for {shown(token['content'])}, but ids before it are left out: it would be {found}",
            )
    of_model = {index: text for text, index in content["model"]["vocab"].items()}
    for index, made in engine.get_added_tokens_decoder().items():
        if of_model.get(index, made.content) != made.content:
            raise invalid(
                path, "model.vocab", f"leaves ids out: {shown(made.content)} would get that of {shown(of_model[index])}"
            )
    for index, added in files.added.items():
        found = engine.token_to_id(added.content)
        if found is not None and found != index:
            raise invalid(
                files.directory / "tokenizer_config.json",
                f"added_tokens_decoder.{index}",
                f"is {shown(added.content)}, whose id in {path.name} is {found}",
            )


def _surroundings(content: Mapping[str, Any], engine: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the post-processor puts before and after every text."""
    if content.get("post_processor") is None:
        return (), ()
    encoding = engine.encode("a")
    inside = [index for index, flag in enumerate(encoding.special_tokens_mask) if not flag]
    if not inside:
        return tuple(encoding.ids), ()
    return tuple(encoding.ids[: inside[0]]), tuple(encoding.ids[inside[-1] + 1 :])


def _end_ids(files: TextFiles, control: Mapping[str, int], rows: int) -> frozenset[int]:
    ends = ends_below(files.end_ids, rows) | named_ends(control)
    eos = files.special.get("eos_token")
    if eos is not None and eos.content in control:
        ends.add(control[eos.content])
    return frozenset(ends)


# --- tokens ---------------------------------------------------------------------------------------


def _by_id(
    size: int, vocab: Mapping[str, int], added: Mapping[int, tokenizers.AddedToken], *, is_byte_level: bool
) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    """Texts and output bytes of all ids below `size`."""
    plain = pieces.byte_level if is_byte_level else _fallback_piece
    texts, stands_for = [""] * size, [b""] * size
    for text, index in vocab.items():
        texts[index], stands_for[index] = text, plain(text)
    for index, token in added.items():
        texts[index], stands_for[index] = token.content, b"" if token.special else token.content.encode()
    return tuple(texts), tuple(stands_for)


def _fallback_piece(text: str) -> bytes:
    if text in _BYTE_SET:
        return bytes([pieces.byte_of(text)])
    return pieces.spaced(text)


_BYTE_SET = frozenset(_BYTE_PIECES)


def _is_byte_level(path: Path, content: Mapping[str, Any]) -> bool:
    """Whether tokens are bytes written as characters, or text with byte tokens beside."""
    for part in ("decoder", "pre_tokenizer"):
        for step in steps(content.get(part)):
            if step.get("type") in _DECODERS:
                return _DECODERS[step["type"]]
    if content["model"].get("byte_fallback"):
        return False
    kinds = [step.get("type") for step in steps(content.get("decoder"))]
    raise invalid(path, "decoder", f"is {kinds}; a byte-level one or one with byte fallback is supported")


def _shrinking(content: Mapping[str, Any], vocab: Mapping[str, int], *, is_byte_level: bool) -> int:
    """How many bytes of a text one may stand for at most that words are made of; 0 where text may vanish."""
    if is_byte_level:
        covers = all(char in vocab for char in pieces.byte_alphabet())
    else:
        covers = bool(content["model"].get("byte_fallback")) and all(text in vocab for text in _BYTE_PIECES)
    normalizers = list(steps(content.get("normalizer")))
    keeps = all(step.get("type") in _KEEPING and _grows(step) for step in normalizers)
    cuts = all(
        step.get("type") in _CUTTING and step.get("behavior") not in ("Removed", "removed")
        for step in steps(content.get("pre_tokenizer"))
    )
    if not (covers and keeps and cuts):
        return 0
    return _NFC_FACTOR if any(step.get("type") == "NFC" for step in normalizers) else 1


def _grows(step: Mapping[str, Any]) -> bool:
    """Whether a Replace puts at least as many bytes as it takes away."""
    if step.get("type") != "Replace":
        return True
    pattern, replacement = step.get("pattern"), step.get("content")
    taken = pattern.get("String") if isinstance(pattern, dict) else None
    return isinstance(taken, str) and isinstance(replacement, str) and len(replacement.encode()) >= len(taken.encode())
