"""The text model of a Gemma 3 directory that sees as well, against transformers' whole model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import greedy_case, tiny_hf, tiny_multimodal
from support.engine_driver import generate_greedy, load_engine
from support.engine_logits import engine_logits, largest_error
from support.greedy_case import NEW_TOKENS
from support.tiny_hf import TinyDir
from support.tiny_layouts import old_config
from support.tiny_multimodal import NEWER, OLDER, TinyMultimodal

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import KEY_INVALID, TENSOR_MISMATCH, TENSOR_MISSING, CheckpointError
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.tokenizer import Tokenizer

TOLERANCE = 2e-5  # of the largest logit
PROMPT = list(range(10, 50))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TinyDir:
    return tiny_hf.make("gemma3_text", tmp_path_factory.mktemp("text") / "model", seed=1)


@pytest.fixture(scope="module")
def tiny(text: TinyDir, tmp_path_factory: pytest.TempPathFactory) -> TinyMultimodal:
    return tiny_multimodal.make(tmp_path_factory.mktemp("whole") / "model", text)


def refusal(tiny: TinyMultimodal) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(tiny.path)
    return caught.value


def test_tokens(tiny: TinyMultimodal) -> None:
    case = greedy_case.make_case(tiny)
    assert generate_greedy(load_engine(tiny.path), case.prompts, NEW_TOKENS).tokens == case.expected


@pytest.mark.parametrize("names", [OLDER, NEWER], ids=["older", "newer"])
def test_both_ways_to_name_tensors(tiny: TinyMultimodal, text: TinyDir, tmp_path: Path, names: dict[str, str]) -> None:
    other = tiny_multimodal.renamed(tiny, tmp_path / "renamed", names)
    beginning = "language_model.model." if names is OLDER else "model.language_model."
    assert any(name.startswith(beginning) for name in tiny_multimodal.read_state(other.path))
    assert largest_error(other) < TOLERANCE
    assert torch.equal(engine_logits(other.path, PROMPT), engine_logits(text.path, PROMPT))
    assert open_checkpoint(other.path).geometry == open_checkpoint(text.path).geometry


def test_the_tokenizer_is_that_of_the_text_model(tiny: TinyMultimodal, text: TinyDir) -> None:
    """Whatever processors of images are described beside it."""
    files = read_text_files(tiny.path)
    assert files.embedding_rows == tiny.vocab_size
    whole, alone = Tokenizer.from_files(files), Tokenizer.from_files(read_text_files(text.path))
    ids = [each.encode("hello world", add_special=True, parse_special=True) for each in (whole, alone)]
    assert ids[0] == ids[1]
    assert files.template == read_text_files(text.path).template
    assert whole.end_ids == alone.end_ids


def test_what_the_smallest_leaves_unsaid(text: TinyDir, tmp_path: Path) -> None:
    """Its text_config states sizes, rope_scaling and a window; all else is as its class has it."""
    usual = {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
    }
    sized = tiny_hf.make("gemma3_text", tmp_path / "text", seed=2, **usual)
    whole = tiny_multimodal.make(tmp_path / "whole", sized)
    stated = ("hidden_size", "intermediate_size", "num_hidden_layers", "rope_scaling", "sliding_window", "vocab_size")

    def shortened(config: dict[str, Any]) -> dict[str, Any]:
        section = old_config(config["text_config"])
        return config | {"text_config": {key: section[key] for key in stated} | {"model_type": "gemma3_text"}}

    short = tiny_multimodal.changed(whole, tmp_path / "short", config=shortened)
    assert open_checkpoint(short.path).geometry == open_checkpoint(whole.path).geometry
    assert largest_error(replace(short, source=short.path)) < TOLERANCE


def test_other_tensors_than_of_images_are_not_passed_over(tiny: TinyMultimodal, tmp_path: Path) -> None:
    surplus = tiny_multimodal.changed(
        tiny, tmp_path / "surplus", lambda state: state | {"audio_tower.weight": torch.zeros(2)}
    )
    assert (refusal(surplus).code, "'audio_tower.weight'" in refusal(surplus).message) == (TENSOR_MISMATCH, True)
    name = "model.language_model.norm.weight"
    newer = tiny_multimodal.renamed(tiny, tmp_path / "newer", NEWER)
    twice = tiny_multimodal.changed(
        replace(newer, source=newer.path),
        tmp_path / "twice",
        lambda state: state | {"language_model.model.norm.weight": state[name]},
    )
    found = refusal(twice)
    assert (found.code, name in found.message) == (TENSOR_MISMATCH, True)
    assert "language_model.model.norm.weight" in found.message
    missing = tiny_multimodal.changed(
        replace(newer, source=newer.path),
        tmp_path / "missing",
        lambda state: {key: value for key, value in state.items() if key != name},
    )
    assert (refusal(missing).code, "norm.weight" in refusal(missing).message) == (TENSOR_MISSING, True)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (None, "'text_config' is missing"),
        ([1], "'text_config' is [1]; an object is wanted"),
        ({"num_hidden_layers": 6}, "'text_config.hidden_size' is missing"),
        ({"rope_scaling": 3}, "'text_config.rope_scaling' is 3"),
        ({"use_bidirectional_attention": True}, "'text_config.use_bidirectional_attention' is true"),
    ],
)
def test_keys_are_named_by_their_section(tiny: TinyMultimodal, tmp_path: Path, section: Any, words: str) -> None:
    def edited(config: dict[str, Any]) -> dict[str, Any]:
        known = {key: value for key, value in config["text_config"].items() if key != "rope_parameters"}
        is_whole = not isinstance(section, dict) or "num_hidden_layers" in section
        return config | {"text_config": section if is_whole else known | section}

    assert words in refusal(tiny_multimodal.changed(tiny, tmp_path / "edited", config=edited)).message


def test_an_untied_output(tiny: TinyMultimodal, tmp_path: Path) -> None:
    """The whole model's word counts, not its text model's."""
    key = "lm_head.weight"
    torch.manual_seed(0)
    output = torch.randn(tiny.vocab_size, tiny.config["hidden_size"])
    for tied in (True, False):
        made = tiny_multimodal.changed(
            tiny,
            tmp_path / str(tied),
            lambda state: state | {key: output},
            lambda config: config | {"tie_word_embeddings": tied},  # noqa: B023 (called at once)
        )
        assert open_checkpoint(made.path).geometry.tied_embeddings == tied
        assert tied or largest_error(replace(made, source=made.path)) < TOLERANCE


def test_the_key_of_a_wrong_value_is_an_error_of_the_document(tiny: TinyMultimodal, tmp_path: Path) -> None:
    made = tiny_multimodal.changed(
        tiny, tmp_path / "wrong", config=lambda config: config | {"tie_word_embeddings": "yes"}
    )
    assert refusal(made).code == KEY_INVALID
