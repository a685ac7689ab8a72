"""Each family's tokenizer, on the sample texts: from a directory as `transformers` has it, from a GGUF
file with the same vocabulary as llama.cpp has it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.family_table import FAMILIES, Added, Family
from support.family_vocabs import write_directory, write_family_gguf, write_tekken
from support.llamacpp_vocab import LlamaVocabulary, llama_vocabularies
from support.sentencepiece_files import write_sentencepiece
from support.text_samples import samples

from halogend.checkpoint.gguf import read_header
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.chat import ChatTemplate
from halogend.text.offload import Offload
from halogend.text.render import render
from halogend.text.render_frames import LENGTH, unframe
from halogend.text.renderer import Rendered
from halogend.text.tokenizer import Tokenizer
from halogend.wire.requests import ChatMessage

NAMES = sorted(FAMILIES)
WAYS = [(add, parse) for add in (False, True) for parse in (False, True)]
CONVERSATIONS = [
    ["Hello"],
    ["  Hello  ", "Hi there!", "What is 2+2?\n"],
    ["\n\nx", " y ", "z"],
    ["def f(x):\n    return x", "```\n1\n```", "你好 123456", "😀", "ok"],
    *([text] for text in samples()[::9]),
]


def texts_of(family: Family) -> list[str]:
    """The samples, and the family's own special tokens in all kinds of places."""
    own = []
    for token in (*family.first, *family.last):
        t = token.text
        own += [t, f"a{t}b", f"  {t}  ", f"x\n{t}\n\n y", f"{t}{t} {t}", f"e\u0301{t}1234 {t[:-1]}", f"{t} hello"]
    return [*samples(), *own]


def different(
    tokenizer: Tokenizer, texts: list[str], theirs: Callable[[str, bool, bool], list[int]]
) -> tuple[list[str], int]:
    wrong, compared = [], 0
    for text in texts:
        for add, parse in WAYS:
            ours = tokenizer.encode(text, add_special=add, parse_special=parse)
            wanted = theirs(text, add, parse)
            compared += 1
            if ours != wanted:
                wrong.append(f"{text!r:.80} add={add} parse={parse}: {ours[:20]} is not {wanted[:20]}")
    return wrong, compared


def of_directory(path: Path) -> Tokenizer:
    return Tokenizer.from_files(read_text_files(path))


def of_gguf(path: Path) -> Tokenizer:
    return Tokenizer.from_header(read_header(path))


@functools.cache
def reference(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)


def by_transformers(fast: Any) -> Callable[[str, bool, bool], list[int]]:
    def ids(text: str, add: bool, parse: bool) -> list[int]:
        return list(fast(text, add_special_tokens=add, split_special_tokens=not parse).input_ids)

    return ids


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("families")

    @functools.cache
    def make(name: str) -> Path:
        return write_directory(FAMILIES[name], root / name)

    return make


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, LlamaVocabulary]]:
    """Every family's GGUF file, and what llama.cpp makes of it."""
    root = tmp_path_factory.mktemp("ggufs")
    paths = {name: write_family_gguf(family, root / f"{name}.gguf") for name, family in FAMILIES.items()}
    texts = list(dict.fromkeys(text for family in FAMILIES.values() for text in texts_of(family)))
    found = llama_vocabularies(list(paths.values()), texts)
    return {name: (path, found[path]) for name, path in paths.items()}


def test_there_are_texts_enough():
    assert all(len(set(texts_of(family))) >= 340 for family in FAMILIES.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_is_tokenised_as_transformers_does(name: str, directory: Callable[[str], Path]):
    path, texts = directory(name), texts_of(FAMILIES[name])
    wrong, compared = different(of_directory(path), texts, by_transformers(reference(path)))
    assert (wrong, compared) == ([], 4 * len(texts))


@pytest.mark.parametrize("name", NAMES)
def test_a_gguf_file_is_tokenised_as_llamacpp_does(name: str, llama: dict[str, tuple[Path, LlamaVocabulary]]):
    path, found = llama[name]
    tokenizer, texts = of_gguf(path), texts_of(FAMILIES[name])
    wrong, compared = different(
        tokenizer, texts, lambda text, add, parse: found.ids(text, add_special=add, parse_special=parse)
    )
    assert (wrong, compared) == ([], 4 * len(texts))
    assert tokenizer.end_ids == found.end_ids
    assert [tokenizer.piece(token) for token in range(tokenizer.vocab_size)] == list(found.pieces)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_are_what_transformers_shows(name: str, directory: Callable[[str], Path]):
    """Special tokens are empty, and the pieces of a text are the text again."""
    tokenizer, fast = of_directory(directory(name)), reference(directory(name))
    assert all(tokenizer.piece(token) == b"" for token in tokenizer.lexicon.control.values())
    for text in texts_of(FAMILIES[name]):
        ids = tokenizer.encode(text, add_special=False, parse_special=True)
        shown = b"".join(map(tokenizer.piece, ids)).decode(errors="replace")
        wanted = fast.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert shown.removeprefix(" ") == wanted.removeprefix(" "), text
    assert tokenizer.piece(tokenizer.vocab_size + 5) == b""


class Here:
    """A renderer without a process of its own."""

    async def render(self, request: bytes) -> Rendered:
        asked = unframe(request[LENGTH.size :])
        done = render(asked["source"], asked["context"])
        return Rendered(done.get("text", done.get("message", "")), done.get("fault", ""))


def turns(contents: list[str]) -> list[ChatMessage]:
    roles = ("user", "assistant")
    return [ChatMessage(role=roles[index % 2], content=text) for index, text in enumerate(contents)]


CHATS = [name for name in NAMES if FAMILIES[name].template is not None]


async def written(tokenizer: Tokenizer, template: str, contents: list[str]) -> tuple[list[Any], str | None]:
    chat = ChatTemplate(template, tokenizer, Here(), Offload(lambda: None))
    return (await chat.write(turns(contents))).cut()


@pytest.mark.parametrize("name", CHATS)
async def test_a_chat_is_what_apply_chat_template_makes_of_it(name: str, directory: Callable[[str], Path]):
    path = directory(name)
    tokenizer, fast, files = of_directory(path), reference(path), read_text_files(path)
    whole_ones = 0
    for contents in CONVERSATIONS:
        messages = [{"role": turn.role, "content": turn.content} for turn in turns(contents)]
        wanted = fast.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
        parts, whole = await written(tokenizer, files.template or "", contents)
        if whole is not None:
            whole_ones += 1
            assert tokenizer.encode_chat(parts, whole) == wanted, contents
            assert tokenizer.encode_chat(parts, None) == wanted, "cut into parts it is the same"
    assert whole_ones >= 30


@pytest.mark.parametrize("name", CHATS)
async def test_a_user_spells_no_control_token(name: str, directory: Callable[[str], Path]):
    """Whatever the users write, the control tokens are the template's, and their words come back."""
    path = directory(name)
    tokenizer, template = of_directory(path), read_text_files(path).template or ""
    control = set(tokenizer.lexicon.control.values())
    for token in tokenizer.lexicon.control:
        for evil in (token, f"a {token} b", f"x{token}{token}\n", f"{token[1:]} {token[:-1]}"):
            parts, whole = await written(tokenizer, template, [evil])
            plain, _ = await written(tokenizer, template, ["hello"])
            ids = tokenizer.encode_chat(parts, whole)
            meant = [part for part in plain if isinstance(part, int)]
            assert [each for each in ids if each in control] == meant, evil
            shown = b"".join(map(tokenizer.piece, ids)).decode()
            assert evil.strip() in shown


@pytest.mark.parametrize("name", NAMES)
def test_no_text_has_fewer_tokens_than_its_bytes_prove(name: str, directory: Callable[[str], Path]):
    """Long ones are refused by that before they are encoded."""
    tokenizer = of_directory(directory(name))
    texts = [*texts_of(FAMILIES[name]), "\u1f82\u0345" * 90, "\u1fbe\u0308\u0301" * 90, "\u1112\u1161\u11ab" * 90]
    for text in [*texts, "".join(f"{token}  \n " * 20 for token in tokenizer.lexicon.control)]:
        ids = tokenizer.encode(text, add_special=False, parse_special=True)
        assert len(ids) >= tokenizer.least_tokens_of([text]), text
        assert len(ids) >= tokenizer.least_tokens(len(text)), text
    assert tokenizer.least_tokens_of(["x" * 100_000]) > 50


def test_flags_of_added_tokens_count(tmp_path: Path):
    flagged = (
        Added("<left>", lstrip=True),
        Added("<right>", rstrip=True, special=False),
        Added("<word>", single_word=True),
        Added("plain", special=False, single_word=True),
        Added("Größe", special=False, normalized=True),
        Added("<é>", normalized=True, lstrip=True, rstrip=True),
    )
    family = dataclasses.replace(FAMILIES["qwen3"], last=(*FAMILIES["qwen3"].last, *flagged))
    path = write_directory(family, tmp_path / "flagged")
    texts = [*texts_of(family), "a<word> <word>b <word>", "plainly plain, plain", "Gro\u0308ße <e\u0301> x"]
    wrong, compared = different(of_directory(path), texts, by_transformers(reference(path)))
    assert (wrong, compared) == ([], 4 * len(texts))


def test_tokens_that_only_the_settings_name(tmp_path: Path):
    """Added and special tokens beside tokenizer.json, and the flags of its own ones."""
    path = write_directory(
        FAMILIES["llama3"],
        tmp_path / "settings",
        additional_special_tokens=["<|eot_id|>", "<|more|>", "hello"],
        pad_token={"__type": "AddedToken", "content": "<|pad|>", "lstrip": True, "special": True},
    )
    config = json.loads((path / "tokenizer_config.json").read_text())
    size = json.loads((path / "config.json").read_text())["vocab_size"]
    config["added_tokens_decoder"] |= {str(size): {"content": "<|late|>", "special": True, "rstrip": True}}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size + 10}))
    texts = [*texts_of(FAMILIES["llama3"]), *(f"x {t}  y{t}" for t in ("<|late|>", "<|more|>", "<|pad|>", "hello"))]
    tokenizer = of_directory(path)
    wrong, compared = different(tokenizer, texts, by_transformers(reference(path)))
    assert (wrong, compared) == ([], 4 * len(texts))
    assert {"<|late|>", "<|more|>", "<|pad|>"} <= tokenizer.lexicon.control.keys()


def test_the_file_counts_as_it_is_written(tmp_path: Path):
    """`transformers` 5 rebuilds some classes' tokenizers from their vocabulary alone, which gives what is
    in the file away: for this class, the space before a text that begins with one."""
    from transformers import PreTrainedTokenizerFast

    family = dataclasses.replace(FAMILIES["mistral-spm"], model_type="llama")
    path = write_directory(family, tmp_path / "llama2")
    fast = by_transformers(PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json")))
    wrong, _ = different(of_directory(path), texts_of(family), fast)
    assert wrong == []
    rebuilt = by_transformers(reference(path))
    assert fast(" hello", False, False) != rebuilt(" hello", False, False)


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_has_one_bos_and_no_eos(name: str, directory: Callable[[str], Path]):
    tokenizer, bos = of_directory(directory(name)), FAMILIES[name].bos
    for text in ("hello", f"{bos or ''}hello", f"{bos or ''} hello {bos or ''}"):
        ids = tokenizer.encode_prompt(tokenizer.control.split(text), text)
        once = tokenizer.encode(text, add_special=True, parse_special=True)
        doubled = tokenizer.lexicon.prefix and text.startswith(bos or "\0")
        assert ids == (once[1:] if doubled else once)


def test_tekken_is_tokenised_as_transformers_converts_it(tmp_path: Path):
    from transformers.integrations.mistral.tokenizer import convert_tekken_tokenizer

    family = FAMILIES["mistral-tekken"]
    path = write_tekken(family, tmp_path / "tekken")
    tokenizer = of_directory(path)
    fast = by_transformers(convert_tekken_tokenizer(str(path / "tekken.json")))
    prefix = list(tokenizer.lexicon.prefix)
    assert [tokenizer.lexicon.tokens[token] for token in prefix] == ["<s>"]
    # The converter leaves BOS away, which every model of the family was trained with.
    wrong, _ = different(tokenizer, texts_of(family), lambda text, add, parse: prefix * add + fast(text, False, parse))
    assert wrong == []
    assert tokenizer.end_ids == {2}
    assert tokenizer.lexicon.tokens[len(family.first) + 1] == f"<SPECIAL_{len(family.first) + 1}>"


@pytest.mark.parametrize("name", [name for name in NAMES if FAMILIES[name].kind == "spm"])
def test_a_sentencepiece_model_is_tokenised_as_its_gguf_file(
    name: str, tmp_path: Path, llama: dict[str, tuple[Path, LlamaVocabulary]]
):
    family = FAMILIES[name]
    tokenizer = of_directory(write_sentencepiece(family, tmp_path / name))
    found = llama[name][1]
    wrong, _ = different(
        tokenizer, texts_of(family), lambda text, add, parse: found.ids(text, add_special=add, parse_special=parse)
    )
    assert wrong == []
