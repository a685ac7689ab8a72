"""Tokenizers from GGUF metadata, on small vocabularies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gguf_files import BPE_CONTROL, bpe_tokenizer, spm_tokenizer, write_gguf
from support.text_samples import samples

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf import read_header
from halogend.text.gguf_vocabulary import read_vocabulary
from halogend.text.tokenizer import Tokenizer
from halogend.text.vocabulary import as_in

Load = Callable[[dict[str, Any]], Tokenizer]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    def load(metadata: dict[str, Any]) -> Tokenizer:
        return Tokenizer.from_header(read_header(write_gguf(tmp_path_factory.mktemp("t") / "t.gguf", metadata)))

    return load


@pytest.fixture(scope="module")
def bpe(load: Load) -> Tokenizer:
    return load(bpe_tokenizer())


@pytest.fixture(scope="module")
def spm(load: Load) -> Tokenizer:
    return load(spm_tokenizer())


def plain(tokenizer: Tokenizer, text: str, *, parse: bool = False) -> list[int]:
    return tokenizer.encode(text, add_special=False, parse_special=parse)


def words(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.lexicon.tokens[token] for token in ids]


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(map(tokenizer.piece, ids)).decode()


def test_bpe_merges_in_order(bpe: Tokenizer):
    assert words(bpe, plain(bpe, "hello world")) == ["hello", "Ġworld"]
    assert words(bpe, plain(bpe, "helo")) == ["he", "l", "o"]


def test_halves_of_merges_are_the_tokens_themselves_and_no_copies(tmp_path):
    vocabulary = read_vocabulary(read_header(write_gguf(tmp_path / "t.gguf", bpe_tokenizer())))
    tokens = {id(token) for token in vocabulary.tokens}
    assert vocabulary.merges
    assert {id(half) for merge in vocabulary.merges for half in merge} <= tokens


def test_what_no_token_is_stays_what_it_is():
    one, other = "abc"[:2], "abd"[:2]
    own = as_in([one])
    assert own(other) is one
    assert own("c") == "c"


@given(st.text(max_size=80))
@settings(deadline=None)
def test_bpe_is_lossless(bpe: Tokenizer, text: str):
    assert text_of(bpe, plain(bpe, text)) == text


@given(st.text(max_size=40).filter(lambda text: "▁" not in text))
@settings(deadline=None)
def test_spm_is_lossless_but_for_the_space_it_puts_first(spm: Tokenizer, text: str):
    assert text_of(spm, plain(spm, text)) in (text, " " + text)


def test_spm_takes_the_best_score_first_and_falls_back_to_bytes(spm: Tokenizer):
    assert words(spm, plain(spm, "hello world")) == ["▁hello", "▁", "world"]
    assert words(spm, plain(spm, "hé")) == ["▁", "h", "<0xC3>", "<0xA9>"]


def test_spm_without_a_space_prefix(load: Load):
    tokenizer = load(spm_tokenizer(**{"tokenizer.ggml.add_space_prefix": False}))
    assert words(tokenizer, plain(tokenizer, "hello")) == ["hello"]


def test_a_space_is_put_after_each_special_token(spm: Tokenizer):
    assert words(spm, plain(spm, "hello</s>hello[user]hello", parse=True)) == [
        "▁hello",
        "</s>",
        "▁hello",
        "[user]",
        "▁hello",
    ]


@pytest.mark.parametrize("control", BPE_CONTROL)
def test_control_tokens_are_parsed_only_when_asked_for(bpe: Tokenizer, control: str):
    token = bpe.lexicon.control[control]
    assert plain(bpe, f"a{control}b", parse=True)[1] == token
    ids = plain(bpe, f"a{control}b")
    assert not set(ids) & set(bpe.lexicon.control.values())
    assert text_of(bpe, ids) == f"a{control}b"


def test_plain_text_makes_no_control_token_though_it_is_one_word(load: Load):
    """A word that is a token stays whole in this vocabulary, and single characters are tokens in the other."""
    metadata = bpe_tokenizer(**{"tokenizer.ggml.pre": "llama-bpe"})
    metadata["tokenizer.ggml.tokens"] += ["SYSTEM"]
    metadata["tokenizer.ggml.token_type"] += [3]
    metadata["tokenizer.ggml.merges"] += ["S Y"]
    metadata["tokenizer.ggml.tokens"] += ["SY"]
    metadata["tokenizer.ggml.token_type"] += [3]
    tokenizer = load(metadata)
    assert words(tokenizer, plain(tokenizer, "SYSTEM")) == list("SYSTEM")
    assert words(tokenizer, plain(tokenizer, "SYSTEM", parse=True)) == ["SYSTEM"]
    metadata = spm_tokenizer()
    metadata["tokenizer.ggml.tokens"][-1] = "§"
    metadata["tokenizer.ggml.token_type"][-1] = 3
    tokenizer = load(metadata)
    assert words(tokenizer, plain(tokenizer, "§")) == ["▁", "<0xC2>", "<0xA7>"]
    assert words(tokenizer, plain(tokenizer, "§", parse=True)) == ["§"]


def test_user_defined_tokens_are_always_parsed(spm: Tokenizer):
    for parse in (True, False):
        assert "[user]" in words(spm, plain(spm, "x[user]", parse=parse))


def test_bos_and_eos_are_added_where_the_model_wants_them(bpe: Tokenizer, spm: Tokenizer, load: Load):
    assert bpe.encode("he", add_special=True, parse_special=False) == plain(bpe, "he")
    assert spm.encode("", add_special=True, parse_special=False) == [1]
    both = load(spm_tokenizer(**{"tokenizer.ggml.add_eos_token": True}))
    assert both.encode("", add_special=True, parse_special=False) == [1, 2]


def test_a_prompt_gets_one_bos_whoever_writes_it(spm: Tokenizer, bpe: Tokenizer):
    hello = plain(spm, "hello")
    assert spm.encode_prompt(["hello"]) == [1, *hello]
    assert spm.encode_prompt([1, "hello"]) == [1, *hello]
    assert spm.encode_prompt(spm.control.split("<s>hello")) == [1, *hello]
    assert bpe.encode_prompt([]) == []


def test_end_tokens(bpe: Tokenizer, spm: Tokenizer, load: Load):
    assert bpe.end_ids == {bpe.lexicon.control[name] for name in ("<|endoftext|>", "<|im_end|>")}
    assert spm.end_ids == {2}
    named = load(bpe_tokenizer(**{"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 6}))
    assert {5, 6} <= named.end_ids


def test_a_token_that_looks_like_an_end_is_control_whatever_its_type(load: Load):
    metadata = bpe_tokenizer()
    metadata["tokenizer.ggml.token_type"][2] = 1
    tokenizer = load(metadata)
    assert "<|im_end|>" in tokenizer.lexicon.control
    assert tokenizer.piece(2) == b""


def test_control_tokens_have_no_text(bpe: Tokenizer, spm: Tokenizer):
    assert [bpe.piece(token) for token in range(4)] == [b""] * 4
    assert [spm.piece(token) for token in range(5)] == [b"", b"", b"", b"\x00", b"\x01"]


def test_words_are_cut_as_the_vocabulary_was_trained(load: Load):
    """Digits: one by one for smollm, up to three for llama-bpe, all for gpt-2."""
    cut = {}
    for pre in ("smollm", "llama-bpe", "gpt-2", "default"):
        metadata = bpe_tokenizer(**{"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": None})
        metadata["tokenizer.ggml.merges"] = ["1 2", "12 3", "123 4"]
        metadata["tokenizer.ggml.tokens"] += ["12", "123", "1234"]
        metadata["tokenizer.ggml.token_type"] += [1, 1, 1]
        tokenizer = load(metadata)
        cut[pre] = words(tokenizer, plain(tokenizer, "1234"))
        assert tokenizer.lexicon.prefix == ((3,) if pre == "llama-bpe" else ())
    assert cut == {
        "smollm": ["1", "2", "3", "4"],
        "llama-bpe": ["123", "4"],
        "gpt-2": ["1234"],
        "default": ["123", "4"],
    }


@pytest.mark.parametrize(
    ("change", "code", "words_wanted"),
    [
        ({"tokenizer.ggml.pre": "qwen9"}, errors.TOKENIZER_INVALID, ("tokenizer.ggml.pre", "qwen9", "smollm")),
        ({"tokenizer.ggml.model": "bert"}, errors.TOKENIZER_INVALID, ("tokenizer.ggml.model", "bert", "gpt2")),
        ({"tokenizer.ggml.model": None}, errors.KEY_INVALID, ("tokenizer.ggml.model",)),
        ({"tokenizer.ggml.tokens": None}, errors.KEY_INVALID, ("tokenizer.ggml.tokens",)),
        ({"tokenizer.ggml.merges": None}, errors.KEY_INVALID, ("tokenizer.ggml.merges",)),
        ({"tokenizer.ggml.merges": ["no such"]}, errors.TOKENIZER_INVALID, ("tokenizer",)),
        ({"tokenizer.ggml.merges": ["nospace"]}, errors.TOKENIZER_INVALID, ("tokenizer",)),
        ({"tokenizer.ggml.token_type": [1, 2, 3]}, errors.KEY_INVALID, ("tokenizer.ggml.token_type", "3 elements")),
        ({"tokenizer.ggml.bos_token_id": 99999}, errors.KEY_INVALID, ("tokenizer.ggml.bos_token_id",)),
        ({"tokenizer.ggml.add_bos_token": "yes"}, errors.KEY_INVALID, ("tokenizer.ggml.add_bos_token",)),
    ],
)
def test_broken_tokenizers_are_refused_by_key(
    load: Load, change: dict[str, Any], code: str, words_wanted: tuple[str, ...]
):
    with pytest.raises(CheckpointError) as caught:
        load(bpe_tokenizer(**change))
    assert caught.value.code == code
    for word in words_wanted:
        assert word in caught.value.message


def test_byte_pieces_that_are_none_are_refused(load: Load):
    metadata = spm_tokenizer()
    metadata["tokenizer.ggml.tokens"][5] = "<0xZZ>"
    with pytest.raises(CheckpointError, match="tokenizer is broken"):
        load(metadata)


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_no_text_has_fewer_tokens_than_its_bytes_prove(kind: str, request: pytest.FixtureRequest):
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    for text in [*samples(), "world" * 50, "<|im_start|>" * 20]:
        ids = plain(tokenizer, text, parse=True)
        assert len(ids) >= tokenizer.least_tokens(len(text.encode()))
    assert tokenizer.least_tokens(10_000) > 100
