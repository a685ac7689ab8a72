"""Models whose weights are sound and whose tokenizer is not."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

from support import malformed_hf as hf
from support.malformed_files import Folder, Link, as_json
from support.malformed_gguf import TOKENS, with_keys

_VOCABULARY = "tokenizer.json"
_SETTINGS = "tokenizer_config.json"
_ENDS_AS_TEXT = {"eos_token_id": "</s>"}


def _file(content: bytes | Link) -> Folder:
    return hf.sharded() | {_VOCABULARY: content}


def _tokenizer(edit: Callable[[dict[str, Any]], object]) -> Folder:
    content = copy.deepcopy(hf.tokenizer_json())
    edit(content)
    return _file(as_json(content))


def _settings(**changes: Any) -> Folder:
    return hf.sharded() | {_SETTINGS: as_json(hf.TOKENIZER_CONFIG | changes)}


def _only(name: str, content: bytes) -> Folder:
    """Another kind of vocabulary in the place of tokenizer.json."""
    return hf.without(hf.sharded(), _VOCABULARY) | {name: content}


def _unigram(content: dict[str, Any]) -> None:
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [[text, -1.0] for text in TOKENS]}


def _sentencepiece_of_unigram() -> bytes:
    """A ModelProto: each piece's text and score, and a trainer's model_type of 1."""
    pieces = b""
    for text in TOKENS:
        raw = text.encode()
        piece = b"\x0a" + bytes([len(raw)]) + raw + b"\x15\x00\x00\x00\x00"
        pieces += b"\x0a" + bytes([len(piece)]) + piece
    return pieces + b"\x12\x02\x18\x01"


def _tekken(*ranked: bytes) -> bytes:
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for rank, token in enumerate(ranked)]
    special = [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(TOKENS[:2])]
    config = {"pattern": ".", "default_vocab_size": 2 + len(ranked), "default_num_special_tokens": 2}
    return as_json({"config": config, "vocab": vocab, "special_tokens": special})


_HF_CASES: dict[str, Callable[[], Folder]] = {
    "text-no-tokenizer": lambda: hf.without(hf.sharded(), _VOCABULARY, _SETTINGS),
    "text-tokenizer-dangling": lambda: _file(Link("../../blobs/fcde2b2edba56bf408601fb721fe9b5c")),
    "text-tokenizer-cut": lambda: _file(as_json(hf.tokenizer_json())[:600]),
    "text-tokenizer-without-model": lambda: _tokenizer(lambda content: content.pop("model")),
    "text-tokenizer-unigram": lambda: _tokenizer(_unigram),
    "text-vocabulary-empty": lambda: _tokenizer(lambda content: content["model"].update(vocab={})),
    "text-vocabulary-id-twice": lambda: _tokenizer(lambda content: content["model"]["vocab"].update(a=5)),
    "text-vocabulary-id-text": lambda: _tokenizer(lambda content: content["model"]["vocab"].update(a="2")),
    "text-vocabulary-beyond-embedding": lambda: _tokenizer(lambda content: content["model"]["vocab"].update(zz=24)),
    "text-merge-unknown": lambda: _tokenizer(lambda content: content["model"]["merges"].append(["x", "y"])),
    "text-merge-of-three": lambda: _tokenizer(lambda content: content["model"]["merges"].append(["a", "b", "c"])),
    "text-added-token-clashes": lambda: _tokenizer(lambda content: content["added_tokens"][1].update(id=4)),
    "text-added-token-without-id": lambda: _tokenizer(lambda content: content["added_tokens"][1].pop("id")),
    "text-added-token-flag": lambda: _tokenizer(lambda content: content["added_tokens"][1].update(special="yes")),
    "text-byte-fallback-number": lambda: _tokenizer(lambda content: content["model"].update(byte_fallback=1)),
    "text-merges-missing": lambda: _tokenizer(lambda content: content["model"].pop("merges")),
    "text-decoder-unsupported": lambda: _tokenizer(
        lambda content: content.update(
            decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, pre_tokenizer=None
        )
    ),
    "text-step-unknown": lambda: _tokenizer(lambda content: content.update(normalizer={"type": "Shuffle"})),
    "text-settings-no-json": lambda: hf.sharded() | {_SETTINGS: b"{'bos_token': '<s>'}\n"},
    "text-bos-number": lambda: _settings(bos_token=0),
    "text-template-number": lambda: _settings(chat_template=17),
    "text-template-no-utf8": lambda: hf.sharded() | {"chat_template.jinja": b"{{ '\xff' }}"},
    "text-added-decoder-id": lambda: _settings(added_tokens_decoder={"one": {"content": "</s>"}}),
    "text-added-decoder-clashes": lambda: _settings(added_tokens_decoder={"7": {"content": "</s>", "special": True}}),
    "text-eos-text": lambda: hf.with_config(**_ENDS_AS_TEXT),
    "text-generation-eos-text": lambda: (
        hf.sharded() | {"generation_config.json": as_json({"eos_token_id": [1, "</s>"]})}
    ),
    "text-sentencepiece-unigram": lambda: _only("tokenizer.model", _sentencepiece_of_unigram()),
    "text-sentencepiece-cut": lambda: _only("tokenizer.model", _sentencepiece_of_unigram()[:40]),
    "text-tekken-token-twice": lambda: _only("tekken.json", _tekken(b"a", b"a")),
    "text-tekken-empty": lambda: _only("tekken.json", _tekken()),
}


def _key(name: str, value: Any) -> Folder:
    return with_keys({f"tokenizer.ggml.{name}": value})


_GGUF_CASES: dict[str, Callable[[], Folder]] = {
    "text-gguf-kind-missing": lambda: _key("model", None),
    "text-gguf-kind-unsupported": lambda: _key("model", "rwkv"),
    "text-gguf-cutting-unknown": lambda: _key("pre", "klingon"),
    "text-gguf-tokens-missing": lambda: _key("tokens", None),
    "text-gguf-tokens-numbers": lambda: _key("tokens", [1, 2, 3]),
    "text-gguf-types-too-few": lambda: _key("token_type", [3, 3, 1]),
    "text-gguf-type-unknown": lambda: _key("token_type", [3, 3, *[9] * (len(TOKENS) - 2)]),
    "text-gguf-merges-missing": lambda: _key("merges", None),
    "text-gguf-merge-unknown": lambda: _key("merges", ["a b", "x y"]),
    "text-gguf-scores-missing": lambda: _key("model", "llama"),
    "text-gguf-eos-past-the-end": lambda: _key("eos_token_id", 99),
    "text-gguf-bos-text": lambda: _key("bos_token_id", "<s>"),
    "text-gguf-add-bos-number": lambda: _key("add_bos_token", 1),
    "text-gguf-template-list": lambda: with_keys({"tokenizer.chat_template": ["{{ messages }}"]}),
}
CASES: dict[str, Callable[[], Folder]] = {**_HF_CASES, **_GGUF_CASES}
