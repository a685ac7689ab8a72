"""Tokenizer files of a Hugging Face directory, made from the same small vocabularies as the GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.tiny_models import CHAT_TEMPLATE
from support.tiny_vocab import CONTROL, UNKNOWN, TinyVocab


def write_tokenizer(path: Path, vocab: TinyVocab) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json in the folder `path`."""
    special = [name for name, kind in zip(vocab.tokens, vocab.types, strict=True) if kind in (CONTROL, UNKNOWN)]
    fast = _sentencepiece(vocab) if vocab.metadata["model"] == "llama" else _byte_level(vocab)
    fast["added_tokens"] = [
        {
            "id": vocab.tokens.index(name),
            "content": name,
            "special": True,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        for name in special
    ]
    _write(path / "tokenizer.json", {"version": "1.0", "truncation": None, "padding": None, **fast})
    _write(path / "tokenizer_config.json", _tokenizer_config(vocab))
    end = vocab.metadata["eos_token_id"]
    generation = {"bos_token_id": vocab.metadata["bos_token_id"], "eos_token_id": [end], "do_sample": True}
    _write(path / "generation_config.json", {**generation, "temperature": 0.7, "top_p": 0.8, "top_k": 20})


def _tokenizer_config(vocab: TinyVocab) -> dict[str, Any]:
    names = {key: vocab.tokens[vocab.metadata[f"{key}_token_id"]] for key in ("bos", "eos")}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names["bos"],
        "eos_token": names["eos"],
        "unk_token": vocab.tokens[vocab.metadata["unknown_token_id"]],
        "pad_token": vocab.tokens[vocab.metadata["padding_token_id"]],
        "add_bos_token": vocab.metadata["add_bos_token"],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def _byte_level(vocab: TinyVocab) -> dict[str, Any]:
    split = {"type": "Digits", "individual_digits": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
        "decoder": level,
        "model": _bpe(vocab, [merge.split(" ") for merge in vocab.metadata["merges"]], byte_fallback=False),
    }


def _sentencepiece(vocab: TinyVocab) -> dict[str, Any]:
    bos = vocab.tokens[vocab.metadata["bos_token_id"]]
    single = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"SpecialToken": {"id": bos, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    special = {bos: {"id": bos, "ids": [vocab.metadata["bos_token_id"]], "tokens": [bos]}}
    words = set(vocab.tokens)
    merges = [
        [piece[:cut], piece[cut:]]
        for piece in vocab.tokens
        if len(piece) > 1 and not piece.startswith("<")
        for cut in range(1, len(piece))
        if piece[:cut] in words and piece[cut:] in words
    ]
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special},
        "decoder": {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": _bpe(vocab, merges, byte_fallback=True),
    }


def _bpe(vocab: TinyVocab, merges: list[list[str]], *, byte_fallback: bool) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": vocab.tokens[vocab.metadata["unknown_token_id"]] if byte_fallback else None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": False,
        "vocab": {name: index for index, name in enumerate(vocab.tokens)},
        "merges": merges,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
