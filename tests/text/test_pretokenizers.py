"""Every way to cut words that a GGUF file may name, and other settings of its tokenizer, against
llama.cpp; and the real models' vocabularies as directories, against `transformers`."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from support.family_table import FAMILIES
from support.family_vocabs import directory_of_header, write_family_gguf
from support.llamacpp_vocab import LlamaVocabulary, llama_vocabularies
from support.text_samples import samples

from halogend.checkpoint.gguf import read_header
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.pretokenize import CUTTINGS
from halogend.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow
_LETTERS = ("Lu", "Ll", "Lt")
WAYS = [(add, parse) for add in (False, True) for parse in (False, True)]
# Settings that llama.cpp does not heed are among them.
SETTINGS: dict[str, dict[str, Any]] = {
    "extra white space": {"remove_extra_whitespaces": True},
    "no prefix, but EOS": {"add_space_prefix": False, "add_eos_token": True},
    "no BOS": {"add_bos_token": False},
    "more ends": {"eot_token_id": 270, "eom_token_id": 271, "fim_pad_token_id": 272, "fim_sep_token_id": 273},
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, LlamaVocabulary]]:
    root = tmp_path_factory.mktemp("pre")
    paths = {pre: write_family_gguf(FAMILIES["phi4"], root / f"{pre}.gguf", pre=pre) for pre in CUTTINGS}
    for index, (name, changes) in enumerate(SETTINGS.items()):
        paths[name] = write_family_gguf(FAMILIES["mistral-spm"], root / f"spm{index}.gguf", **changes)
    found = llama_vocabularies(list(paths.values()), samples())
    return {name: (path, found[path]) for name, path in paths.items()}


@pytest.mark.parametrize("name", [*CUTTINGS, *SETTINGS])
def test_words_are_cut_as_llamacpp_cuts_them(name: str, llama: dict[str, tuple[Path, LlamaVocabulary]]):
    path, found = llama[name]
    tokenizer = Tokenizer.from_header(read_header(path))
    assert tokenizer.end_ids == found.end_ids
    for text in samples():
        for add, parse in WAYS:
            ours = tokenizer.encode(text, add_special=add, parse_special=parse)
            assert ours == found.ids(text, add_special=add, parse_special=parse), (text, add, parse)


@pytest.mark.parametrize("name", ["deepseek-coder", "deepseek-llm"])
def test_every_letter_is_cut_as_llamacpp_cuts_it(name: str, tmp_path: Path):
    """These list letters one by one. Each letter stands behind one that any list has, and behind a space."""
    path = write_family_gguf(FAMILIES["phi4"], tmp_path / "m.gguf", pre=name)
    letters = [chr(code) for code in range(0x20000) if unicodedata.category(chr(code)) in _LETTERS]
    texts = ["".join(f"a{letter} {letter}" for letter in letters[at : at + 200]) for at in range(0, len(letters), 200)]
    tokenizer, found = Tokenizer.from_header(read_header(path)), llama_vocabularies([path], texts)[path]
    for text in texts:
        ours = tokenizer.encode(text, add_special=False, parse_special=False)
        assert ours == found.ids(text, add_special=False, parse_special=False), text


@pytest.mark.models
@pytest.mark.parametrize(("model", "family"), [("gemma", "gemma"), ("smollm2", "smollm")])
def test_a_real_vocabulary_as_a_directory(model: str, family: str, tmp_path: Path, request: pytest.FixtureRequest):
    from transformers import AutoTokenizer

    header = read_header(request.getfixturevalue(model))
    directory = directory_of_header(header, FAMILIES[family], tmp_path / model)
    tokenizer, fast = Tokenizer.from_files(read_text_files(directory)), AutoTokenizer.from_pretrained(directory)
    assert (
        tokenizer.vocab_size
        == len(fast)
        == len(json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"])
    )
    for text in samples():
        for add, parse in WAYS:
            ours = tokenizer.encode(text, add_special=add, parse_special=parse)
            assert ours == fast(text, add_special_tokens=add, split_special_tokens=not parse).input_ids, (text, add)
    ids = tokenizer.encode("".join(samples()), add_special=False, parse_special=False)
    shown = b"".join(map(tokenizer.piece, ids)).decode()
    assert shown.replace("▁", " ") == "".join(samples()).replace("▁", " ")
