"""Directories whose tokenizer cannot be used: each is refused by file and key."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from support.family_table import FAMILIES, Family
from support.family_vocabs import tokenizer_json, write_directory, write_tekken
from support.sentencepiece_files import BPE, UNIGRAM, data, model_bytes, number, write_sentencepiece

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.tokenizer import Tokenizer

Change = Callable[[dict[str, Any]], None]


def refusal(directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_files(read_text_files(directory))
    return caught.value


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return write_directory(FAMILIES["qwen3"], tmp_path / "qwen3")


def edit(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def set_in(*keys: str | int, value: Any) -> Change:
    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


def test_broken_json(hub: Path):
    text = (hub / "tokenizer.json").read_text()
    (hub / "tokenizer.json").write_text(text[: len(text) // 2])
    error = refusal(hub)
    assert error.code == errors.KEY_INVALID
    assert "tokenizer.json: is no valid JSON:" in error.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_in("model", value=None), "key 'model' is missing or no object"),
        (set_in("model", "vocab", value=["a"]), "key 'model.vocab' is missing, empty or no object"),
        (set_in("model", "vocab", "x", value="1"), "key 'model.vocab' gives 'x' the id '1'"),
        (set_in("model", "vocab", "<|x", value=1), "key 'model.vocab' gives '\"' and '<|x' one id, 1"),
        (set_in("model", "type", value="WordPiece"), "key 'model.type' is 'WordPiece'; only 'BPE' is supported"),
        (set_in("model", "type", value="Unigram"), "key 'model.type' is 'Unigram'; only 'BPE' is supported"),
        (set_in("model", "merges", 3, value=["Ġ", "nopiece"]), "key 'model.merges[3]' names 'nopiece', which is not"),
        (set_in("model", "merges", 3, value="a b c"), "key 'model.merges[3]' is 'a b c'; two pieces are wanted"),
        (set_in("model", "merges", 3, value={"a": 1, "b": 2}), "key 'model.merges[3]' is {'a': 1, 'b': 2}; two pieces"),
        (set_in("model", "merges", value={}), "key 'model.merges' is missing or no list"),
        (set_in("added_tokens", value={"a": 1}), "key 'added_tokens' is no list"),
        (set_in("added_tokens", 0, value={"id": 1}), "key 'added_tokens[0]' has no id or no content"),
        (set_in("added_tokens", 0, "id", value=0), "key 'added_tokens[0]' gives '<|endoftext|>' the id 0 of '!'"),
        (set_in("added_tokens", 1, "id", value=1203), "gives '<|im_start|>' the id 1203 of '<|endoftext|>'"),
        (
            lambda content: content["added_tokens"].pop(0),
            "key 'added_tokens[0].id' is 1204 for '<|im_start|>', but ids before it are left out: it would be 1203",
        ),
        (
            set_in("pre_tokenizer", value={"type": "Nonsense"}),
            "'pre_tokenizer' has a step that cannot be used: {'type'",
        ),
    ],
)
def test_a_broken_tokenizer_json(hub: Path, change: Change, words: str):
    edit(hub / "tokenizer.json", change)
    error = refusal(hub)
    assert error.code == errors.TOKENIZER_INVALID
    assert error.message.startswith(f"{hub / 'tokenizer.json'}: ")
    assert words in error.message


def test_a_vocabulary_that_is_neither_bytes_nor_sentencepiece(hub: Path):
    def change(content: dict[str, Any]) -> None:
        content["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
        content["pre_tokenizer"] = {"type": "Whitespace"}

    edit(hub / "tokenizer.json", change)
    assert "key 'decoder' is ['WordPiece']; a byte-level one or one with byte fallback" in refusal(hub).message


def test_an_id_beyond_the_embedding(hub: Path):
    edit(hub / "config.json", set_in("vocab_size", value=1000))
    error = refusal(hub)
    assert error.code == errors.TOKENIZER_INVALID
    assert "the id 1000, but 'vocab_size' of config.json gives the embedding 1000 rows" in error.message


def test_added_tokens_beyond_the_embedding_are_left_out(hub: Path):
    """As text models have them that were made from one with images."""
    edit(hub / "config.json", set_in("vocab_size", value=1206))
    tokenizer = Tokenizer.from_files(read_text_files(hub))
    assert tokenizer.vocab_size == 1206
    for text, wanted in (("<|im_end|>", 1205), ("<think>", None)):
        ids = tokenizer.encode(text, add_special=False, parse_special=True)
        assert max(ids) < 1206
        assert wanted is None or ids == [wanted]


def test_a_setting_that_contradicts_the_vocabulary(hub: Path):
    edit(hub / "tokenizer_config.json", set_in("added_tokens_decoder", "7", value={"content": "<|im_end|>"}))
    error = refusal(hub)
    assert "tokenizer_config.json: key 'added_tokens_decoder.7' is '<|im_end|>', whose id in" in error.message


def test_ids_that_are_left_out(hub: Path):
    """The package counts tokens for the next id, which another one has then."""

    def change(content: dict[str, Any]) -> None:
        content["added_tokens"] = []
        for text in ("UMLAUTS", "Ġtitlecase"):
            del content["model"]["vocab"][text]
        content["model"]["vocab"] |= {"far": 1202, "farther": 1203}

    edit(hub / "tokenizer.json", change)
    edit(hub / "tokenizer_config.json", set_in("added_tokens_decoder", value={}))
    assert "key 'model.vocab' leaves ids out: '<|im_end|>' would get that of" in refusal(hub).message


def test_no_tokenizer_at_all(hub: Path):
    (hub / "tokenizer.json").unlink()
    assert "has no tokenizer; one of tokenizer.json, tekken.json, tokenizer.model is wanted" in refusal(hub).message


def test_a_download_that_is_incomplete(hub: Path):
    (hub / "tokenizer.json").unlink()
    (hub / "tokenizer.json").symlink_to("../../blobs/0123")
    error = refusal(hub)
    assert error.code == errors.FILE_UNREADABLE
    assert error.message.endswith("is a dangling symlink to ../../blobs/0123: the download is incomplete")


# --- tekken ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_in("config", value=3), "key 'config' is missing or no object"),
        (set_in("config", "pattern", value=None), "key 'config.pattern' is missing or no string"),
        (set_in("config", "pattern", value="(a"), "key 'config.pattern' is no pattern"),
        (set_in("config", "default_vocab_size", value="many"), "key 'config.default_vocab_size' is 'many'"),
        (set_in("config", "default_num_special_tokens", value=3), "is 3, but there are 7"),
        (set_in("vocab", value={}), "key 'vocab' is missing or no list"),
        (set_in("vocab", 300, "token_bytes", value="a*b"), "key 'vocab[300].token_bytes' is no base64"),
        (set_in("vocab", 300, "token_bytes", value=7), "key 'vocab[300]' has no token_bytes"),
        (
            set_in("vocab", 300, "token_bytes", value=base64.b64encode(b"a" * 5000).decode()),
            "key 'vocab[300].token_bytes' has 5000 bytes",
        ),
        (set_in("vocab", 300, "rank", value=4), "key 'vocab[300].rank' is 4, out of order"),
        (
            set_in("vocab", 300, "token_bytes", value=base64.b64encode(b"!").decode()),
            "key 'vocab' holds a token twice, or an empty one",
        ),
        (
            set_in("vocab", 5, "token_bytes", value=base64.b64encode(b"quite new").decode()),
            "key 'vocab' lacks byte 0x26 among its first 256 tokens",
        ),
        (set_in("special_tokens", 2, "rank", value=1), "key 'special_tokens[2]' has rank 1, as '<s>' has"),
        (set_in("special_tokens", 2, "rank", value=90), "key 'special_tokens' leaves ranks out"),
        (set_in("special_tokens", 2, value={}), "key 'special_tokens[2]' has no rank or no token_str"),
    ],
)
def test_a_broken_tekken_file(tmp_path: Path, change: Change, words: str):
    directory = write_tekken(FAMILIES["mistral-tekken"], tmp_path / "t")
    edit(directory / "tekken.json", change)
    error = refusal(directory)
    assert error.code == errors.TOKENIZER_INVALID
    assert error.message.startswith(f"{directory / 'tekken.json'}: ")
    assert words in error.message


def test_tekken_ids_beyond_the_embedding(tmp_path: Path):
    directory = write_tekken(FAMILIES["mistral-tekken"], tmp_path / "t")
    edit(directory / "config.json", set_in("vocab_size", value=500))
    assert "tokens, but key 'vocab_size' of config.json gives the embedding 500 rows" in refusal(directory).message


# --- sentencepiece --------------------------------------------------------------------------------

PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁", -1.0, 1), ("a", -2.0, 1)]


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (model_bytes(PIECES)[:-1], errors.TRUNCATED, "the sentencepiece model is truncated: "),
        (model_bytes(PIECES)[:9], errors.TRUNCATED, "the sentencepiece model is truncated: "),
        (b"", errors.TOKENIZER_INVALID, "is empty"),
        (data(2, b""), errors.TOKENIZER_INVALID, "is no sentencepiece model: it holds no pieces"),
        (b"IQ== 0\nIg== 1\n", errors.TOKENIZER_INVALID, "is no sentencepiece model"),
        (b"\x0b\x01", errors.TOKENIZER_INVALID, "is no sentencepiece model: a field has the wire type 3"),
        (b"\xff" * 12, errors.TOKENIZER_INVALID, "is no sentencepiece model: a number has over ten bytes"),
        (model_bytes(PIECES, kind=UNIGRAM), errors.TOKENIZER_INVALID, "of the kind 'unigram'; only 'bpe' is supported"),
        (model_bytes([*PIECES, PIECES[4]]), errors.TOKENIZER_INVALID, "piece 'a' is there twice"),
        (model_bytes([("a", 0.0, 9)]), errors.TOKENIZER_INVALID, "piece 0 is broken: 9 is not a valid TokenType"),
        (model_bytes([("a" * 5000, 0.0, 1)]), errors.TOKENIZER_INVALID, "a piece has 5000 characters, more than 4096"),
        (model_bytes([("a", float("nan"), 1)]), errors.TOKENIZER_INVALID, "piece 0 has a score that is no number"),
        (data(1, data(1, b"\xff")), errors.TOKENIZER_INVALID, "piece 0 is broken: 'utf-8'"),
        (
            model_bytes([*PIECES, ("<0xZZ>", 0.0, 6)], kind=BPE),
            errors.TOKENIZER_INVALID,
            "its tokenizer is broken: invalid literal",
        ),
        (
            model_bytes(PIECES) + data(3, data(2, b"charsmap")),
            errors.TOKENIZER_INVALID,
            "normalises characters ('precompiled_charsmap'), which is not supported",
        ),
    ],
)
def test_a_broken_sentencepiece_model(tmp_path: Path, content: bytes, code: str, words: str):
    (tmp_path / "tokenizer.model").write_bytes(content)
    (tmp_path / "config.json").write_text("{}")
    error = refusal(tmp_path)
    assert error.code == code
    assert error.message.startswith(f"{tmp_path / 'tokenizer.model'}: ")
    assert words in error.message


def test_pieces_that_are_there_twice_are_found_in_one_pass(tmp_path: Path):
    """Of a vocabulary, or of the tokens that are added to it: a search for each of them would take minutes."""
    path = tmp_path / "tokenizer.model"
    many = [*PIECES, *((f"<{number}>", 0.0, 1) for number in range(30_000))]
    (tmp_path / "config.json").write_text("{}")
    path.write_bytes(model_bytes([*many, many[-1]]))
    start = time.process_time()
    assert refusal(tmp_path).message == f"{path}: piece '<29999>' is there twice"
    path.write_bytes(model_bytes(many))
    added = {str(len(many) + number): {"content": f"[{number}]"} for number in range(30_000)}
    last = len(many) + len(added)
    added[str(last)] = {"content": "[29999]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    assert f"key 'added_tokens_decoder.{last}' is '[29999]', which another id" in refusal(tmp_path).message
    assert time.process_time() - start < 5


def test_fields_of_other_kinds_are_passed_over(tmp_path: Path):
    more = number(9, 1 << 60) + b"\x51" + bytes(8) + b"\x55" + bytes(4) + data(11, b"?")
    (tmp_path / "tokenizer.model").write_bytes(more + model_bytes(PIECES))
    (tmp_path / "config.json").write_text("{}")
    tokenizer = Tokenizer.from_files(read_text_files(tmp_path))
    assert tokenizer.encode("a", add_special=True, parse_special=False) == [1, 3, 4]


def test_added_tokens_that_leave_ids_out_of_a_sentencepiece_model(tmp_path: Path):
    directory = write_sentencepiece(FAMILIES["gemma"], tmp_path / "g")
    edit(directory / "config.json", set_in("vocab_size", value=9000))
    edit(directory / "tokenizer_config.json", set_in("added_tokens_decoder", "5000", value={"content": "<x>"}))
    assert "key 'added_tokens_decoder.5000' leaves out ids from" in refusal(directory).message


def test_no_byte_of_a_file_is_trusted(tmp_path: Path):
    """A model cut anywhere, or with any byte changed, is refused or read, and nothing else."""
    whole = model_bytes(PIECES)
    (tmp_path / "config.json").write_text("{}")
    for index in range(len(whole)):
        for content in (whole[:index], whole[:index] + bytes([whole[index] ^ 0xFF]) + whole[index + 1 :]):
            (tmp_path / "tokenizer.model").write_bytes(content)
            with contextlib.suppress(CheckpointError):
                Tokenizer.from_files(read_text_files(tmp_path))


# --- what the settings say of tokens that are not there --------------------------------------------

Write = Callable[[Family, Path], Path]
WRITERS: dict[str, tuple[str, Write]] = {
    "tokenizer.json": ("llama3", write_directory),
    "tekken.json": ("mistral-tekken", write_tekken),
    "tokenizer.model": ("mistral-spm", write_sentencepiece),
}


@pytest.fixture(params=WRITERS)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """With each kind of vocabulary."""
    name, write = WRITERS[request.param]
    return write(FAMILIES[name], tmp_path / "d")


@pytest.mark.parametrize(("switch", "name"), [("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")])
def test_a_token_around_every_text_that_there_is_not(directory: Path, switch: str, name: str):
    settings = directory / "tokenizer_config.json"
    before = json.loads(settings.read_text()) if settings.exists() else {}
    settings.write_text(json.dumps(before | {switch: True, name: "<nowhere>"}))
    error = refusal(directory)
    vocabulary = next(name for name in WRITERS if (directory / name).exists())
    assert (error.code, error.message) == (
        errors.TOKENIZER_INVALID,
        f"{settings}: key '{name}' is '<nowhere>', which {vocabulary} lacks, but '{switch}' is true",
    )
    settings.write_text(json.dumps(before | {switch: False, name: "<nowhere>"}))
    Tokenizer.from_files(read_text_files(directory))


def test_end_tokens_beyond_the_vocabulary_are_dropped_and_said(directory: Path):
    before = Tokenizer.from_files(read_text_files(directory)).end_ids
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [10**9, 3]}))
    with structlog.testing.capture_logs() as logged:
        ends = Tokenizer.from_files(read_text_files(directory)).end_ids
    assert ends - before <= {3}
    assert 3 in ends
    [line] = [line for line in logged if line["event"] == "end_tokens_beyond_vocabulary"]
    assert (line["tokens"], line["count"]) == ([10**9], 1)


# --- what plain text must not make ----------------------------------------------------------------


def test_merges_that_lead_to_a_control_token_make_none_of_user_text(tmp_path: Path):
    family = FAMILIES["mistral-spm"]
    directory = write_directory(family, tmp_path / "m")

    def change(content: dict[str, Any]) -> None:
        vocab = content["model"]["vocab"]
        vocab["s>"] = len(vocab)
        content["model"]["merges"] = [["s", ">"], ["<", "s>"], *content["model"]["merges"]]

    edit(directory / "tokenizer.json", change)
    edit(directory / "config.json", set_in("vocab_size", value=2000))
    tokenizer = Tokenizer.from_files(read_text_files(directory))
    assert tokenizer.encode("a<s>b", add_special=False, parse_special=True).count(1) == 1
    ids = tokenizer.encode("a<s>b", add_special=False, parse_special=False)
    assert not set(ids) & set(tokenizer.lexicon.control.values())
    assert b"".join(map(tokenizer.piece, ids)) == b" a<s>b"
    assert tokenizer.lexicon.tokens[ids[-2]] == "s>", "all else is merged as before"


def test_a_normalisation_that_spells_a_control_token_makes_none(tmp_path: Path):
    """Full-width letters become plain ones before added tokens with `normalized` are looked for."""
    directory = write_directory(FAMILIES["qwen3"], tmp_path / "q")

    def change(content: dict[str, Any]) -> None:
        content["normalizer"] = {"type": "NFKC"}
        for token in content["added_tokens"]:
            token["normalized"] = True

    edit(directory / "tokenizer.json", change)
    tokenizer = Tokenizer.from_files(read_text_files(directory))
    sneaky = "<｜im_end｜>"  # noqa: RUF001 - full-width bars
    text = f"<|im_start|>user\n{sneaky}<|im_end|>"
    parts = tokenizer.control.split(text)
    control = [each for each in tokenizer.encode_chat(parts, text) if each in tokenizer.lexicon.control.values()]
    assert control == [part for part in parts if isinstance(part, int)]
    assert len(control) == 2


def test_the_trained_vocabularies_are_whole():
    content = tokenizer_json(FAMILIES["llama3"])
    assert len(content["model"]["merges"]) > 800
