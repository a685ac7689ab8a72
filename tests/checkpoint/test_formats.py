"""The format is in the first bytes, never in the name."""

from __future__ import annotations

from pathlib import Path

import pytest

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.formats import detect_format, resolve_format

SAFETENSORS = b"\x02\0\0\0\0\0\0\0{}"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "found"),
    [(b"GGUF" + bytes(20), "gguf"), (b"HALOGEN2" + bytes(20), "v2"), (SAFETENSORS + b"data", "safetensors")],
)
def test_magic_bytes_decide_whatever_the_name(tmp_path: Path, data: bytes, found: str):
    assert detect_format(write(tmp_path / "model.pt", data)) == found


def test_a_directory_with_a_configuration_is_safetensors(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        detect_format(tmp_path)
    write(tmp_path / "config.json", b"{}")
    assert detect_format(tmp_path) == "safetensors"


@pytest.mark.parametrize("data", [b"", b"<html>", b"PK\x03\x04" + bytes(30), b"\xff" * 8 + b"{}", bytes(64)])
def test_what_is_none_is_refused_with_what_it_begins_with(tmp_path: Path, data: bytes):
    with pytest.raises(CheckpointError) as caught:
        detect_format(write(tmp_path / "model.gguf", data))
    assert caught.value.code == errors.FORMAT_UNKNOWN
    assert ("empty" if not data else repr(data[:8])) in caught.value.message


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(CheckpointError) as caught:
        detect_format(tmp_path / "none")
    assert caught.value.code == errors.FILE_UNREADABLE


def test_a_file_that_contradicts_the_stated_format(tmp_path: Path):
    path = write(tmp_path / "m", b"HALOGEN2" + bytes(8))
    with pytest.raises(CheckpointError, match="load_format says gguf") as caught:
        resolve_format(path, "gguf")
    assert caught.value.code == errors.FORMAT_CONTRADICTION


def test_the_format_to_load_with(tmp_path: Path):
    path = write(tmp_path / "m", b"GGUF" + bytes(8))
    assert resolve_format(path, "auto") == resolve_format(path, "gguf") == "gguf"
    path = write(tmp_path / "n", b"HALOGEN2" + bytes(8))
    assert resolve_format(path, "auto") == resolve_format(path, "v2") == "v2"
