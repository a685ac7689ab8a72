"""Sampling defaults of a checkpoint: what it states, what makes no sense, and what nobody asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.gguf_files import llama_sizes, write_gguf

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf import read_header
from halogend.checkpoint.sampling import directory_sampling, gguf_sampling

Read = Callable[..., dict[str, float]]
GGUF_KEYS = {"temperature": "temp", "repetition_penalty": "penalty_repeat"}
NO_NUMBER = float("nan")


@pytest.fixture(params=["directory", "gguf"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """The defaults of a checkpoint that states the given ones."""

    def from_directory(stated: dict[str, Any], overridden: tuple[str, ...] = ()) -> dict[str, float]:
        (tmp_path / "generation_config.json").write_text(json.dumps(stated))
        return directory_sampling(tmp_path, overridden)

    def from_gguf(stated: dict[str, Any], overridden: tuple[str, ...] = ()) -> dict[str, float]:
        keys = {f"general.sampling.{GGUF_KEYS.get(name, name)}": value for name, value in stated.items()}
        return gguf_sampling(read_header(write_gguf(tmp_path / "m.gguf", {**llama_sizes(), **keys})), overridden)

    return from_directory if request.param == "directory" else from_gguf


def test_what_is_stated(read: Read) -> None:
    assert read({}) == {}
    stated = {"temperature": 0.75, "top_p": 0.5, "top_k": 20, "min_p": 0.25, "repetition_penalty": 1.25}
    assert read(stated) == stated
    assert read({"top_k": 0, "temperature": 0.0}) == {"top_k": 0, "temperature": 0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "0.7"),
        ("temperature", True),
        ("temperature", -0.5),
        ("temperature", 3.0),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", 1.5),
        ("min_p", [0.5]),
        ("repetition_penalty", 0.0),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field_that_overrides_it(read: Read, name: str, value: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        read({name: value})
    assert caught.value.code == errors.KEY_INVALID
    assert f"set sampling.{name} in the document" in caught.value.message
    assert read({name: value}, (name,)) == {}


def test_a_temperature_that_is_no_number(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {**llama_sizes(), "general.sampling.temp": NO_NUMBER})
    with pytest.raises(CheckpointError, match="nan"):
        gguf_sampling(read_header(path))


def test_a_model_that_does_not_sample_takes_the_likeliest_token(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"temperature": 0.7, "top_p": 0.9, "do_sample": False}))
    assert directory_sampling(tmp_path) == {"temperature": 0.0, "top_p": 0.9}
    assert directory_sampling(tmp_path, ("temperature",)) == {"top_p": 0.9}
    path.write_text(json.dumps({"top_k": -1}))  # another word for off
    assert directory_sampling(tmp_path) == {"top_k": 0}
    path.write_text(json.dumps({"do_sample": "no"}))
    with pytest.raises(CheckpointError, match="'do_sample'"):
        directory_sampling(tmp_path)


def test_without_a_generation_config_nothing_is_stated(tmp_path: Path) -> None:
    assert directory_sampling(tmp_path) == {}
