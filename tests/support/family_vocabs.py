"""A small vocabulary for each family of models, in the shape that the family publishes: its normaliser,
word cutting, post-processor and added tokens, trained here on the sample texts.

    family = family_table.FAMILIES["qwen3"]
    directory = write_directory(family, tmp_path)      tokenizer.json, tokenizer_config.json, config.json
    gguf = write_family_gguf(family, tmp_path / "m.gguf")   the same vocabulary
"""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.family_table import GPT2, LLAMA3, QWEN, TEKKEN, Added, Family
from support.gguf_files import byte_alphabet, llama_sizes, llama_tensors, write_gguf
from support.text_samples import samples
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from halogend.checkpoint.gguf import GgufHeader
from halogend.text.gguf_vocabulary import read_vocabulary
from halogend.text.vocabulary import TokenType

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
_SIZE = 1200
# Whole words that no merges lead to: they are tokens where merges are ignored.
_UNREACHABLE = ("Ġligatures", "Ġtitlecase", "UMLAUTS")


# --- training -------------------------------------------------------------------------------------


@functools.cache
def corpus() -> tuple[str, ...]:
    """The sample texts, and code, numbers and Chinese made up here. The same every time."""
    rng = random.Random(7)
    words = ["the", "of", "and", "to", "in", "that", "for", "it", "model", "token", "value", "return", "import", "self"]
    made = [" ".join(rng.choices(words, k=30)) for _ in range(60)]
    made += [f"def {w}_{n}(self, x):\n    return x + {n}  # {w}\n" for n, w in enumerate(words * 4)]
    made += [str(rng.randrange(10**9)) for _ in range(60)]
    made += ["".join(rng.choices("的一是不了人我在有他这中大来上国个到说们", k=24)) for _ in range(60)]
    return (*samples(), *made)


@functools.cache
def _bytes_trained(pattern: str, digits: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """(tokens, merges): the 256 bytes first."""
    engine = Tokenizer(models.BPE())
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    engine.pre_tokenizer = pre_tokenizers.Sequence(steps)
    trainer = trainers.BpeTrainer(vocab_size=_SIZE, initial_alphabet=byte_alphabet(), show_progress=False)
    engine.train_from_iterator(corpus(), trainer)
    model = json.loads(engine.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = tuple((left, right) for left, right in model["merges"])
    return (*tokens, *(word for word in _UNREACHABLE if word not in tokens)), merges


@functools.cache
def _spm_trained() -> tuple[str, ...]:
    """Pieces, the best first and single characters last."""
    engine = Tokenizer(models.BPE())
    engine.normalizer = normalizers.Replace(" ", "▁")
    engine.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=_SIZE, limit_alphabet=300, show_progress=False)
    engine.train_from_iterator(corpus(), trainer)
    vocab = engine.get_vocab()
    ordered = sorted(vocab, key=vocab.__getitem__)
    merged = [text for text in ordered if len(text) > 1 and not set(text) & set("<>|[]\x00") and set(text) != {"▁"}]
    return ("▁▁", "▁▁▁▁", *merged, *(text for text in ordered if len(text) == 1 and text != "\x00"))


@dataclass(frozen=True)
class Laid:
    """A family's tokens by id, with GGUF's types and scores."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    vocab: Mapping[str, int]  # what is in the model, without `last`


def laid_out(family: Family) -> Laid:
    first = [token.text for token in family.first]
    if family.kind == "spm":
        pieces = [
            text for text in _spm_trained() if text not in {token.text for token in (*family.first, *family.last)}
        ]
        middle = [*(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
        middle_types = [BYTE] * 256 + [NORMAL] * len(pieces)
        merges = ()
    else:
        tokens, merges = _bytes_trained(*_training(family))
        middle, middle_types = list(tokens), [NORMAL] * len(tokens)
    last = [token.text for token in family.last]
    types = [*map(_type_of, family.first), *middle_types, *map(_type_of, family.last)]
    scores: list[float] = []
    if family.kind == "spm":
        ranked = [-float(index) for index in range(len(pieces))]
        scores, merges = [0.0] * (len(first) + 256) + ranked + [0.0] * len(last), _merges_of(pieces)
    own = [*first, *middle]
    return Laid((*own, *last), tuple(types), tuple(scores), merges, {text: index for index, text in enumerate(own)})


def _training(family: Family) -> tuple[str, bool]:
    patterns = {"tekken": TEKKEN, "llama-bpe": LLAMA3, "dbrx": LLAMA3, "qwen2": QWEN}
    return patterns.get(family.gguf["pre"], GPT2), family.gguf["pre"] == "smollm"


def _type_of(token: Added) -> int:
    if token.text == "<unk>":
        return UNKNOWN
    return CONTROL if token.special else USER_DEFINED


def _merges_of(pieces: list[str]) -> tuple[tuple[str, str], ...]:
    from transformers.convert_slow_tokenizer import generate_merges

    return tuple(
        generate_merges(
            {text: index for index, text in enumerate(pieces)},
            {text: -float(index) for index, text in enumerate(pieces)},
        )
    )


# --- files ----------------------------------------------------------------------------------------


def tokenizer_json(family: Family) -> dict[str, Any]:
    laid = laid_out(family)
    added = [token.entry(index) for index, token in enumerate(family.first)]
    start = len(laid.tokens) - len(family.last)
    added += [token.entry(start + index) for index, token in enumerate(family.last)]
    ids = {token["content"]: token["id"] for token in added}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    model |= {**family.model, "vocab": dict(laid.vocab), "merges": [list(merge) for merge in laid.merges]}
    pipeline = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, **family.pipeline}
    if family.bos is not None and pipeline["post_processor"] in ("bos", "none"):
        wanted = family.bos if pipeline["post_processor"] == "bos" else None
        pipeline["post_processor"] = _template(wanted, ids[family.bos])
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return {**head, **pipeline, "model": model}


def _template(bos: str | None, index: int) -> dict[str, Any]:
    """A post-processor that puts `bos` first, or nothing."""
    first = [{"SpecialToken": {"id": bos, "type_id": 0}}] if bos else []
    return {
        "type": "TemplateProcessing",
        "single": [*first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [*first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [index], "tokens": [bos]}} if bos else {},
    }


def write_directory(family: Family, directory: Path, **changes: Any) -> Path:
    """A model's directory as far as text goes. `changes` are to tokenizer_config.json."""
    directory.mkdir(exist_ok=True)
    content = tokenizer_json(family)
    (directory / "tokenizer.json").write_text(json.dumps(content))
    listed = {}
    for token in content["added_tokens"]:
        listed[str(token["id"])] = {key: value for key, value in token.items() if key != "id"}
    config: dict[str, Any] = {"added_tokens_decoder": listed, "bos_token": family.bos, "eos_token": family.eos}
    config |= {"chat_template": family.template, "model_max_length": 4096, **family.config, **changes}
    config = {key: value for key, value in config.items() if value is not None}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    size = len(laid_out(family).tokens)
    (directory / "config.json").write_text(json.dumps({"model_type": family.model_type, "vocab_size": size}))
    return directory


def write_family_gguf(family: Family, path: Path, **changes: Any) -> Path:
    """A tiny model with the family's vocabulary. `changes` are to `tokenizer.ggml.` keys."""
    laid = laid_out(family)
    ids = {text: index for index, text in enumerate(laid.tokens)}
    keys: dict[str, Any] = {"tokens": list(laid.tokens), "token_type": list(laid.types)}
    if family.kind == "spm":
        keys |= {"model": "llama", "scores": list(laid.scores), "unknown_token_id": ids["<unk>"]}
    else:
        keys |= {"model": "gpt2", "merges": [" ".join(merge) for merge in laid.merges]}
    keys |= {"bos_token_id": ids.get(family.bos or ""), "eos_token_id": ids.get(family.eos or "")}
    keys |= {**family.gguf, **changes}
    metadata = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    metadata["general.name"] = family.name_in_gguf or family.name
    return write_gguf(path, {**llama_sizes(), **metadata}, llama_tensors(len(laid.tokens)))


def directory_of_header(header: GgufHeader, family: Family, directory: Path) -> Path:
    """The vocabulary of a real model's GGUF file, in the shape of its family's tokenizer.json."""
    directory.mkdir(exist_ok=True)
    found = read_vocabulary(header)
    merges = found.merges if found.cutting is not None else _merges_by_score(found.tokens, found.types, found.scores)
    special = (TokenType.CONTROL, TokenType.UNKNOWN)
    added = [
        Added(text, special=kind in special).entry(index)
        for index, (text, kind) in enumerate(zip(found.tokens, found.types, strict=True))
        if kind in (*special, TokenType.USER_DEFINED)
    ]
    content = tokenizer_json(family)
    model = {"vocab": {text: index for index, text in enumerate(found.tokens)}, "merges": list(map(list, merges))}
    content |= {"added_tokens": added, "model": {**content["model"], **model}}
    if found.add_bos and family.bos is not None and found.bos_id is not None:
        content["post_processor"] = _template(family.bos, found.bos_id)
    config = {"bos_token": family.bos, "eos_token": family.eos, **family.config}
    size = {"model_type": family.model_type, "vocab_size": len(found.tokens)}
    for name, value in (("tokenizer", content), ("tokenizer_config", config), ("config", size)):
        (directory / f"{name}.json").write_text(json.dumps(value))
    return directory


def _merges_by_score(
    tokens: Sequence[str], types: Sequence[TokenType], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """As the family's own converter makes them: every split of a piece into pieces, the best piece first."""
    score = {
        text: value
        for text, kind, value in zip(tokens, types, scores, strict=True)
        if kind in (TokenType.NORMAL, TokenType.USER_DEFINED)
    }
    return [
        (text[:cut], text[cut:])
        for text in sorted(score, key=score.__getitem__, reverse=True)
        for cut in range(1, len(text))
        if text[:cut] in score and text[cut:] in score
    ]


def write_tekken(family: Family, directory: Path) -> Path:
    """The same vocabulary as tekken.json, with a few ids set aside for special tokens to come."""
    directory.mkdir(exist_ok=True)
    tokens = _bytes_trained(*_training(family))[0]
    to_byte = {char: byte for byte, char in enumerate(byte_alphabet())}
    ranked = [bytes(to_byte[char] for char in text) for text in tokens]
    special = [{"rank": index, "token_str": token.text, "is_control": True} for index, token in enumerate(family.first)]
    count = len(family.first) + 4
    content = {
        "config": {
            "pattern": TEKKEN,
            "num_vocab_tokens": len(ranked) + 7,
            "default_vocab_size": len(ranked) + count,
            "default_num_special_tokens": count,
            "version": "v7",
        },
        "vocab": [
            {"rank": index, "token_bytes": base64.b64encode(data).decode(), "token_str": None}
            for index, data in enumerate([*ranked, *(b"padding %d" % index for index in range(7))])
        ],
        "special_tokens": special,
    }
    (directory / "tekken.json").write_text(json.dumps(content))
    (directory / "config.json").write_text(
        json.dumps({"model_type": "mistral", "vocab_size": len(ranked) + count, "eos_token_id": 2})
    )
    return directory
