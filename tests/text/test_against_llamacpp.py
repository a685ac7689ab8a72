"""Tokenisation, pieces and end tokens against llama.cpp, on the real models and on their
vocabularies with other settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gguf_files import llama_sizes, llama_tensors, write_gguf
from support.llamacpp import llama_end_ids, llama_post, llama_server, llama_tokenize
from support.text_samples import samples

from halogend.checkpoint.gguf import ArrayRef, read_header
from halogend.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.models, pytest.mark.slow]
Variant = Callable[..., Path]


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    """A tiny llama model with a real model's vocabulary and the given changes to its metadata."""

    def write(source: Path, **changes: Any) -> Path:
        header = read_header(source)
        metadata: dict[str, Any] = {
            key: value for key, value in header.metadata.items() if key.startswith("tokenizer.ggml.")
        }
        for key, value in metadata.items():
            if isinstance(value, ArrayRef):
                strings = value.element.name == "STRING"
                metadata[key] = header.strings(key) if strings else list(header.numbers(key))
        metadata |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
        vocab = len(metadata["tokenizer.ggml.tokens"])
        tensors = llama_tensors(8)
        tensors["token_embd.weight"] = np.zeros((vocab, 32), np.float32)
        return write_gguf(tmp_path / "variant.gguf", {**llama_sizes(), **metadata}, tensors)

    return write


def different(path: Path) -> tuple[list[str], int]:
    """The texts that are tokenised otherwise, and how many comparisons there were."""
    tokenizer = Tokenizer.from_header(read_header(path))
    texts = samples()
    wrong, compared = [], 0
    with llama_server(path, ctx=512) as url:
        for text in texts:
            for special in (True, False):
                ours = tokenizer.encode(text, add_special=True, parse_special=special)
                theirs = llama_tokenize(url, text, add_special=True, parse_special=special)
                compared += 1
                if ours != theirs:
                    wrong.append(f"{text!r:.80} parse_special={special}: {ours} is not {theirs}")
    return wrong, compared


def test_there_are_texts_enough():
    assert len(set(samples())) >= 320


@pytest.mark.parametrize("model", ["smollm2", "gemma"])
def test_every_text_is_tokenised_alike(model: str, request: pytest.FixtureRequest):
    wrong, compared = different(request.getfixturevalue(model))
    assert (wrong, compared) == ([], 2 * len(samples()))


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "default"])
def test_other_ways_to_cut_words(pre: str, variant: Variant, smollm2: Path):
    wrong, _ = different(variant(smollm2, pre=pre, add_bos_token=None))
    assert wrong == []


def test_a_space_before_the_text(variant: Variant, gemma: Path):
    wrong, _ = different(variant(gemma, add_space_prefix=True, pre=None))
    assert wrong == []


@pytest.mark.parametrize("model", ["smollm2", "gemma"])
def test_the_same_tokens_end_a_generation(model: str, request: pytest.FixtureRequest):
    path = request.getfixturevalue(model)
    assert Tokenizer.from_header(read_header(path)).end_ids == llama_end_ids(path)


@pytest.mark.parametrize("model", ["smollm2", "gemma"])
def test_ids_become_the_same_text(model: str, request: pytest.FixtureRequest):
    """Texts of the samples, and random ids that are no control tokens."""
    path = request.getfixturevalue(model)
    tokenizer = Tokenizer.from_header(read_header(path))
    rng = np.random.default_rng(5)
    plain = [token for token in range(tokenizer.vocab_size) if tokenizer.piece(token)]
    runs = [tokenizer.encode(text, add_special=False, parse_special=False) for text in samples()[::4]]
    runs += [rng.choice(plain, 40).tolist() for _ in range(60)]
    with llama_server(path, ctx=512) as url:
        for ids in runs:
            ours = b"".join(map(tokenizer.piece, ids)).decode(errors="replace")
            assert ours == llama_post(url, "/detokenize", {"tokens": ids})["content"]
