"""Tables that no load waits for: read while the model serves, when nobody else wants the disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from support.engine_client import PATIENCE_S, make_generate
from support.engine_driver import engine_spec, load_engine
from support.engine_process import EngineProcess
from support.tiny_models import tiny_llama
from support.v2_models import as_v2

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine import loading, read_behind
from halogend.engine.convert import convert
from halogend.engine.mapping import WeightMap
from halogend.engine.passing import Passing
from halogend.engine.progress import Progress
from halogend.engine.read_behind import ReadBehind

QUANTISED = {"precision": "int8", "compute_dtype": "fp32", "kv_cache_dtype": "fp32"}
NAME = "read-behind"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 3 MiB beside matrices of a few KiB."""
    folder = tmp_path_factory.mktemp("v2")
    return as_v2(tiny_llama(folder / "a.gguf", extra_vocab=12_000).path, folder / "a.hgn2")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, int, int]]]:
    """What is mapped before the load is over, and what is read behind it, in their order: tensor, first byte, bytes."""
    told: dict[str, list[tuple[str, int, int]]] = {"ahead": [], "behind": []}
    populate, pass_on = WeightMap.populate, Passing.read

    def populating(self: WeightMap, tensor: TensorInfo, start: int, nbytes: int) -> None:
        told["ahead"].append((tensor.name, start, nbytes))
        populate(self, tensor, start, nbytes)

    def passing(self: Passing, tensor: TensorInfo, start: int, nbytes: int) -> None:
        if threading.current_thread().name == NAME:
            told["behind"].append((tensor.name, start, nbytes))
        pass_on(self, tensor, start, nbytes)

    monkeypatch.setattr(WeightMap, "populate", populating)
    monkeypatch.setattr(Passing, "read", passing)
    return told


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def is_over() -> bool:
    return not any(thread.name == NAME for thread in threading.enumerate())


def names(pieces: list[tuple[str, int, int]]) -> set[str]:
    return {name for name, _, _ in pieces}


# --- what is read when ----------------------------------------------------------------------------


def test_the_table_is_read_while_it_serves_once_and_all_else_before(path: Path, read: dict[str, list]) -> None:
    engine = load_engine(path, load_threads=0, mmap_threshold=1.0, **QUANTISED)
    table = open_checkpoint(path).weights["token_embd"]
    matrices = {name for name, weight in open_checkpoint(path).weights.items() if weight.columns > 1}
    assert names(read["ahead"]) == matrices - {"token_embd"}
    assert read["behind"] == []
    with engine.behind:
        until(is_over)
    assert names(read["behind"]) == {"token_embd"}
    starts, sizes = [start for _, start, _ in read["behind"]], [nbytes for _, _, nbytes in read["behind"]]
    assert starts == [sum(sizes[:number]) for number in range(len(sizes))]
    assert (sum(sizes), len(sizes) > 1) == (table.nbytes, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"load_threads": 1, "mmap_threshold": 1.0},  # in order, and nobody reads beside it
        {"load_threads": 0, "mmap_threshold": 0.0},  # copied
        {"load_threads": 0, "mmap_threshold": 1.0, "backend": "triton", "pool_bytes": 1 << 20},  # as on a device
    ],
)
def test_where_the_table_is_needed_whole_nothing_is_left_for_later(
    path: Path, read: dict[str, list], fields: dict[str, object]
) -> None:
    with load_engine(path, **(QUANTISED | fields)).behind:
        until(is_over)
    assert read["behind"] == []


def test_a_table_that_is_the_output_matrix_too_is_read_before_it_serves(tmp_path: Path, read: dict[str, list]) -> None:
    tied = tmp_path / "tied.hgn2"
    convert(tiny_llama(tmp_path / "a.gguf").path, tied, quant_policy="fp32")
    assert "output" not in open_checkpoint(tied).weights
    read["behind"].clear()
    with load_engine(tied, load_threads=0, mmap_threshold=1.0).behind:
        until(is_over)
    assert (names(read["ahead"]), read["behind"]) == ({"token_embd"}, [])


@pytest.mark.parametrize("load_threads", [0, 1])
def test_a_part_that_holds_the_table_alone_and_is_cut_short_is_refused(tmp_path: Path, load_threads: int) -> None:
    """Before the model serves, though nobody has looked there yet."""
    source = tiny_llama(tmp_path / "a.gguf", extra_vocab=3000).path
    path = as_v2(source, tmp_path / "a.hgn2", part_bytes=400_000)
    checkpoint = open_checkpoint(path)
    table = checkpoint.weights["token_embd"].pieces[0].encoded.tensors[0]
    others = [t for w in checkpoint.weights.values() for t in w.pieces[0].encoded.tensors if t.name != "token_embd"]
    assert table.file not in {tensor.file for tensor in others}
    progress = Progress()
    advance = progress.advance

    def cut(nbytes: int) -> None:
        advance(nbytes)
        os.truncate(checkpoint.files[table.file], table.offset + table.nbytes // 2)

    progress.advance = cut  # type: ignore[method-assign]  # something happens at that moment
    spec = engine_spec(path, mmap_threshold=1.0, load_threads=load_threads, **QUANTISED)
    with pytest.raises(CheckpointError, match="changed while it was loaded"):
        loading.load(spec, progress)


# --- how it is read -------------------------------------------------------------------------------


class Tables:
    """A file of zeros, and a tensor over all of it."""

    def __init__(self, path: Path, nbytes: int = 5 << 20) -> None:
        path.write_bytes(bytes(nbytes))
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY)
        self.tensor = TensorInfo("w", (nbytes,), None, 0, nbytes)  # type: ignore[arg-type]  # nobody looks

    def behind(self, count: int = 1) -> ReadBehind:
        return ReadBehind([self.tensor] * count, (self.path,), (self.descriptor,))

    def open_here(self) -> int:
        """How many descriptors of the file this process has."""
        there = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return sum(each.readlink() == self.path for each in there if each.exists())


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(tmp_path / "w")
    yield made
    os.close(made.descriptor)


def test_it_ends_with_whoever_entered_it(tables: Tables, read: dict[str, list]) -> None:
    with tables.behind(count=10_000):
        until(lambda: bool(read["behind"]))
        assert not is_over()
    until(is_over)
    assert len(read["behind"]) < 50_000, "which is all"


def test_its_descriptors_are_its_own_and_go_with_it(tables: Tables) -> None:
    behind = tables.behind()
    assert tables.open_here() == 2
    with behind:
        until(is_over)
    assert tables.open_here() == 1
    unused = tables.behind()
    assert tables.open_here() == 2
    del unused
    assert tables.open_here() == 1


def test_it_reads_when_nobody_else_wants_the_processor_or_the_disk(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And half of the time not at all: as long as it read it waits."""
    nice, idle = [], threading.Event()
    monkeypatch.setattr(read_behind, "nice_thread", nice.append)
    monkeypatch.setattr(read_behind, "yield_disk", idle.set)
    clock = iter(range(1000))
    waits: list[float] = []
    behind = tables.behind()
    monkeypatch.setattr(read_behind, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr(behind._stopped, "wait", waits.append)
    behind._work()
    assert (nice, idle.is_set(), waits) == ([19], True, [1.0] * 5)


def test_a_file_that_is_cut_short_is_told_and_ends_nobody(tables: Tables) -> None:
    os.truncate(tables.path, 2 << 20)
    with capture_logs() as lines, tables.behind():
        until(is_over)
    (line,) = lines
    assert (line["event"], line["code"]) == ("weights_unreadable", errors.TRUNCATED)
    assert "the file ends inside tensor 'w'" in line["message"]


def test_an_engine_reads_it_as_soon_as_it_serves(path: Path) -> None:
    """Its descriptors of the file are then those of the mapping alone."""
    process = EngineProcess()
    try:
        process.start(engine_spec(path, load_threads=0, mmap_threshold=1.0, **QUANTISED))
        until(lambda: process.files().count(str(path)) == 1)
        process.client.data.send(make_generate(1, [3, 4, 11_000], 4))
        process.client.until_ended(1)
        assert len(process.client.tokens[1]) == 4
    finally:
        process.close()
