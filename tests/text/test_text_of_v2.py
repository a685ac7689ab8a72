"""What a v2 checkpoint says of text is what it was made from said."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import tiny_hf
from support.text_process import text_process
from support.text_samples import CODE, CONTROL, EMOJI, LANGUAGES, SPACES
from support.tiny_models import CHAT_TEMPLATE, tiny_gemma3, tiny_llama
from support.v2_models import as_v2

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.own_text import has_template, open_text, sampling_of, text_of
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.encode import encode
from halogend.text.tokenizer import Tokenizer


def tokenizer_of(path: Path) -> Tokenizer:
    text = open_text(path, "auto")
    return Tokenizer.from_header(text) if isinstance(text, GgufHeader) else Tokenizer.from_files(read_text_files(text))


@pytest.mark.parametrize("kind", ["bpe.gguf", "spm.gguf", "directory"])
def test_the_same_ids_and_the_same_template(kind: str, tmp_path: Path) -> None:
    if kind == "directory":
        source = tiny_hf.make("llama", tmp_path / "source").path
        (source / "chat_template.jinja").write_text(CHAT_TEMPLATE)
        (source / "generation_config.json").write_text('{"temperature": 0.3, "top_k": 7}')
    else:
        make = tiny_llama if kind.startswith("bpe") else tiny_gemma3
        source = make(tmp_path / "a.gguf", chat_template=CHAT_TEMPLATE).path
    path = as_v2(source, tmp_path / "a.hgn2")
    ours, theirs = tokenizer_of(path), tokenizer_of(source)
    for sample in (*CODE, *CONTROL, *EMOJI, *LANGUAGES, *SPACES):
        assert ours.encode(sample, add_special=True, parse_special=True) == theirs.encode(
            sample, add_special=True, parse_special=True
        )
    assert encode(str(path), LANGUAGES[0]) == encode(str(source), LANGUAGES[0]) != []
    assert ours.end_ids == theirs.end_ids
    found, wanted = text_of(open_checkpoint(path)), text_of(open_checkpoint(source))
    assert has_template(found)
    assert has_template(wanted)
    assert sampling_of(found, ()) == sampling_of(wanted, ())
    if kind == "directory":
        assert sampling_of(found, ("top_k",)) == {"temperature": 0.3}


def test_a_text_process_starts_with_one(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "a.gguf", chat_template=CHAT_TEMPLATE).path
    with text_process() as process:
        ready = process.start(as_v2(source, tmp_path / "a.hgn2"))
    assert (ready.vocab_size, ready.has_chat_template) == (tokenizer_of(source).vocab_size, True)


def test_a_damaged_tokenizer_is_refused_whatever_is_checked(tmp_path: Path) -> None:
    source = tiny_hf.make("llama", tmp_path / "source").path
    path = as_v2(source, tmp_path / "a.hgn2")
    file = open_checkpoint(path).v2
    assert file is not None
    entry = file.entries["text/tokenizer.json"]
    with path.open("r+b") as damaged:
        damaged.seek(entry.offset + entry.nbytes // 2)
        (byte,) = damaged.read(1)
        damaged.seek(entry.offset + entry.nbytes // 2)
        damaged.write(bytes([byte ^ 1]))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json") as caught:
        tokenizer_of(path)
    assert caught.value.code == errors.DIGEST_MISMATCH


def test_a_key_that_is_wrong_is_named_with_its_place_in_the_file(tmp_path: Path) -> None:
    source = tiny_hf.make("llama", tmp_path / "source").path
    (source / "generation_config.json").write_text('{"temperature": -1}')
    path = as_v2(source, tmp_path / "a.hgn2")
    with pytest.raises(CheckpointError, match="'temperature'") as caught:
        sampling_of(text_of(open_checkpoint(path)), ())
    assert str(path / "text" / "generation_config.json") in caught.value.message
