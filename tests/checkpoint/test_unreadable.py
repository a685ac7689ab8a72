"""Whatever the file system answers about a checkpoint's path, the answer is a CheckpointError."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import malformed_hf as hf
from support.malformed import write_folder
from support.malformed_files import LFS_POINTER

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.files import read_whole
from halogend.checkpoint.formats import detect_format
from halogend.checkpoint.gguf import read_header
from halogend.checkpoint.safetensors import read_shards
from halogend.checkpoint.sampling import directory_sampling
from halogend.checkpoint.tokenizer_files import own_template, read_text_files, text_files
from halogend.checkpoint.v2.reader import open_v2

NOBODY = 65534
READERS: dict[str, Callable[[Path], object]] = {
    "open_checkpoint": open_checkpoint,
    "detect_format": detect_format,
    "open_v2": lambda path: open_v2(path / "m.hgn2"),
    "read_header": lambda path: read_header(path / "m.gguf"),
    "read_shards": read_shards,
    "read_text_files": read_text_files,
    "text_files": text_files,
    "own_template": own_template,
    "directory_sampling": directory_sampling,
}
# By what is wrong with the path: it, below a root that anybody may enter.
PATHS: dict[str, Callable[[Path], Path]] = {
    "not to be entered": lambda root: _with_mode(root / "model", 0o444),
    "below one not to be entered": lambda root: _with_mode(root, 0o444) / "model",
    "name too long": lambda root: root / ("m" * 300),
    "path too long": lambda root: root / "/".join(["m" * 200] * 30),
}


@pytest.fixture
def root() -> Iterator[Path]:
    """Holds `model`, a sound directory. Nobody is root here, to whom every file is open."""
    user, path = os.geteuid(), Path(tempfile.mkdtemp())
    path.chmod(0o755)
    write_folder(hf.sharded(), path / "model")
    if user == 0:
        shutil.chown(path, NOBODY)
        shutil.chown(path / "model", NOBODY)
        os.seteuid(NOBODY)
    try:
        yield path
    finally:
        os.seteuid(user)
        for each in (path, path / "model"):
            each.chmod(0o755)
        shutil.rmtree(path)


def _with_mode(path: Path, mode: int) -> Path:
    path.chmod(mode)
    return path


def refusal(read: Callable[[Path], object], path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    return caught.value


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("wrong", PATHS)
def test_what_may_not_be_looked_at_is_refused_with_the_reason(reader: str, wrong: str, root: Path):
    path = PATHS[wrong](root)
    error = refusal(READERS[reader], path)
    assert error.code == errors.FILE_UNREADABLE
    assert error.message.startswith(str(path))
    reason = "File name too long" if "long" in wrong else "Permission denied"
    assert error.message.endswith(f": cannot be read: {reason}")


def test_the_model_itself_is_sound(root: Path):
    assert open_checkpoint(root / "model").geometry.layers == 2


def test_a_directory_that_may_not_be_listed(root: Path):
    """Its files are read by their names; only what would look around says that it may not."""
    model = _with_mode(root / "model", 0o111)
    assert open_checkpoint(model).geometry.layers == 2
    for name, read in (("config.json", detect_format), (hf.INDEX, read_shards)):
        model.chmod(0o755)
        (model / name).unlink()
        model.chmod(0o111)
        error = refusal(read, model)
        assert (error.code, error.message) == (
            errors.FILE_UNREADABLE,
            f"{model}: cannot be read: Permission denied",
        )


@pytest.mark.parametrize("reader", READERS)
def test_a_path_with_a_nul_is_none(reader: str, tmp_path: Path):
    assert refusal(READERS[reader], tmp_path / "a\0b").code in {errors.FILE_UNREADABLE, errors.TOKENIZER_INVALID}


def test_a_symlink_to_itself(tmp_path: Path):
    path = tmp_path / "loop"
    path.symlink_to(path)
    error = refusal(open_checkpoint, path)
    assert error.code == errors.FILE_UNREADABLE
    assert error.message.endswith("Too many levels of symbolic links")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "chat_template.jinja", hf.INDEX])
def test_what_git_lfs_has_not_fetched(name: str, tmp_path: Path):
    write_folder(hf.sharded() | {name: LFS_POINTER}, tmp_path)
    read = open_checkpoint if name in ("config.json", hf.INDEX) else read_text_files
    error = refusal(read, tmp_path)
    assert (error.code, error.message) == (
        errors.FORMAT_UNKNOWN,
        f"{tmp_path / name}: is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`",
    )


def test_a_file_is_read_up_to_its_limit(tmp_path: Path):
    path = tmp_path / "file"
    most = 2 << 20
    path.write_bytes(b"a" * most)
    assert read_whole(path, most) == b"a" * most
    path.write_bytes(b"a" * (most + 1))
    error = refusal(lambda path: read_whole(path, most, errors.TOKENIZER_INVALID), path)
    assert (error.code, error.message) == (errors.TOKENIZER_INVALID, f"{path}: is larger than 2 MiB")
