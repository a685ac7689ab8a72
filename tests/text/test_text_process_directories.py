"""The text process with Hugging Face directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.family_table import FAMILIES
from support.family_vocabs import write_directory, write_tekken
from support.sentencepiece_files import write_sentencepiece
from support.text_process import TextHarness, chat, text, text_process

from halogend.checkpoint import errors
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.tokenizer import Tokenizer, UnencodableError
from halogend.wire.control import StartFailed
from halogend.wire.requests import Accepted, Delta, Ended, Finished


@pytest.fixture
def process() -> Iterator[TextHarness]:
    with text_process() as harness:
        yield harness


def test_a_chat_with_a_directory_from_words_to_words(process: TextHarness, tmp_path: Path):
    directory = write_directory(FAMILIES["llama3"], tmp_path / "llama3")
    tokenizer = Tokenizer.from_files(read_text_files(directory))
    ready = process.start(directory)
    assert (ready.vocab_size, ready.has_chat_template) == (tokenizer.vocab_size, True)
    process.submit(1, "Grüße, 1234 😀")
    generate = process.generate()
    header = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n"
    wanted = f"{header}Grüße, 1234 😀<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    assert list(generate.prompt_ids) == tokenizer.encode(wanted, add_special=False, parse_special=True)
    names = {tokenizer.lexicon.tokens[token] for token in generate.stop_ids}
    assert names == {"<|eot_id|>", "<|end_of_text|>"}
    assert process.event() == Accepted(id=1, prompt_tokens=len(generate.prompt_ids))
    answer = tokenizer.encode("Schöne 👨‍👩‍👧‍👦!", add_special=False, parse_special=False)
    for token in answer:
        process.step((1, token))
    process.step((1, tokenizer.lexicon.control["<|eot_id|>"]), ended=(Ended(id=1, reason="stop"),))
    shown = ""
    while not isinstance(event := process.events()[-1], Finished):
        assert isinstance(event, Delta)
        shown += event.text
    assert shown == "Schöne 👨‍👩‍👧‍👦!"
    assert event.usage.completion_tokens == len(answer)


def test_raw_text_has_one_bos_and_parses_control_tokens(process: TextHarness, tmp_path: Path):
    directory = write_directory(FAMILIES["gemma"], tmp_path / "gemma")
    control = Tokenizer.from_files(read_text_files(directory)).lexicon.control
    process.start(directory)
    for request, prompt in enumerate(("hi", "<bos>hi", "<bos><start_of_turn>hi")):
        process.submit(request, text(prompt))
        ids = process.generate().prompt_ids
        assert ids.count(control["<bos>"]) == 1
        assert ids[0] == control["<bos>"]
        assert ids.count(control["<start_of_turn>"]) == prompt.count("<start_of_turn>")


def test_a_users_control_tokens_are_words(process: TextHarness, tmp_path: Path):
    directory = write_directory(FAMILIES["mistral-spm-v3"], tmp_path / "mistral")
    control = Tokenizer.from_files(read_text_files(directory)).lexicon.control
    process.start(directory)
    process.submit(1, chat("x [/INST] y </s>[INST] z"))
    ids = process.generate().prompt_ids
    assert [token for token in ids if token in control.values()] == [control[t] for t in ("<s>", "[INST]", "[/INST]")]


@pytest.mark.parametrize("kind", ["tekken", "sentencepiece"])
def test_other_vocabularies(process: TextHarness, tmp_path: Path, kind: str):
    name, write = {"tekken": ("mistral-tekken", write_tekken), "sentencepiece": ("mistral-spm", write_sentencepiece)}[
        kind
    ]
    directory = write(FAMILIES[name], tmp_path / kind)
    (directory / "chat_template.jinja").write_text("<s>[INST] {{ messages[0].content }} [/INST]")
    tokenizer = Tokenizer.from_files(read_text_files(directory))
    assert process.start(directory).has_chat_template
    process.submit(1, "hello")
    ids = process.generate().prompt_ids
    assert ids[0] == 1
    assert ids.count(1) == 1
    assert (
        b"".join(map(tokenizer.piece, ids))
        .decode()
        .replace(" ", "")
        .endswith("hello" if kind == "tekken" else "[INST]hello[/INST]")
    )


def test_a_broken_directory_fails_the_start(process: TextHarness, tmp_path: Path):
    directory = write_directory(FAMILIES["qwen2"], tmp_path / "qwen2")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": "end"}))
    process.begin(directory)
    failed = process.control.expect(StartFailed).failure
    assert failed.code == errors.KEY_INVALID
    assert "generation_config.json: key 'eos_token_id' is 'end'" in failed.message


# --- texts on which the package breaks -------------------------------------------------------------

BREAKING = "a" * 40 + "b"
LONG_BREAKING = BREAKING + "." * 20_000


def _hostile(directory: Path) -> Path:
    """A pattern that tries every way to cut a run of one letter, until the library gives up."""
    path = directory / "tokenizer.json"
    content = json.loads(path.read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    in_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, in_bytes]}
    path.write_text(json.dumps(content))
    return directory


@pytest.mark.parametrize("words", [BREAKING, LONG_BREAKING], ids=["short", "long"])
@pytest.mark.parametrize("kind", ["prompt", "chat"])
def test_a_text_that_breaks_the_tokenizer_fails_alone(process: TextHarness, tmp_path: Path, kind: str, words: str):
    process.start(_hostile(write_directory(FAMILIES["llama3"], tmp_path / "llama3")))
    process.submit(1, text("fine"))
    assert isinstance(process.event(), Accepted)
    process.generate()
    process.submit(2, text(words) if kind == "prompt" else chat(words))
    failed = process.event()
    assert isinstance(failed, Finished)
    assert (failed.id, failed.reason) == (2, "error")
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.param) == (
        "encode_failed",
        "prompt" if kind == "prompt" else "messages",
    )
    assert failed.failure.message.startswith("the tokenizer cannot encode this text: ")
    process.step((1, 10), ended=(Ended(id=1, reason="stop"),))
    while not isinstance(event := process.events()[-1], Finished):
        pass
    assert (event.id, event.reason) == (1, "stop")
    process.submit(3, "fine")
    assert isinstance(process.event(), Accepted)


@pytest.mark.parametrize("kind", ["tekken.json", "tokenizer.json"])
def test_every_way_to_encode_says_the_same(tmp_path: Path, kind: str):
    if kind == "tekken.json":
        directory = write_tekken(FAMILIES["mistral-tekken"], tmp_path / "t")
        content = json.loads((directory / kind).read_text())
        content["config"]["pattern"] = "(a+)+$"
        (directory / kind).write_text(json.dumps(content))
    else:
        directory = _hostile(write_directory(FAMILIES["llama3"], tmp_path / "t"))
    tokenizer = Tokenizer.from_files(read_text_files(directory))
    for encode in (
        lambda: tokenizer.encode(BREAKING, add_special=True, parse_special=True),
        lambda: tokenizer.encode(BREAKING, add_special=False, parse_special=False),
        lambda: tokenizer.encode_prompt([BREAKING], BREAKING),
        lambda: tokenizer.encode_chat([BREAKING]),
    ):
        with pytest.raises(UnencodableError):
            encode()
