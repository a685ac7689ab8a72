"""Formats beside each other in the benchmark of loading: what is made, what ranks read, how it adds up."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from halogend.checkpoint import rope
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.v2 import shards
from halogend.checkpoint.v2.reader import open_v2
from halogend.cli.main import main as halogend
from halogend.engine.bench import load_arms, load_ranks, load_start, synthetic, synthetic_v2
from halogend.engine.bench.children import ChildFailedError
from halogend.engine.bench.driven import DrivenEngine
from halogend.engine.bench.free_memory import UsedMemory
from halogend.obs.processor import numbers

MIB = 1 << 20


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is held of the memory that an arm is to find, which here is written down and not taken."""
    wanted: list[int] = []

    class Held:
        def __init__(self, wanted_bytes: int) -> None:
            self._wanted_bytes = wanted_bytes
            wanted.append(wanted_bytes)

        def release(self) -> None:
            wanted.remove(self._wanted_bytes)

    monkeypatch.setattr(load_arms, "UsedMemory", Held)
    return wanted


def silent(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture
def make_v2(tmp_path: Path) -> Callable[[str], Path]:
    """Two layers with twelve heads: they divide by two, three and four; the vocabulary does not by three."""

    def make(kind: str) -> Path:
        geometry = Geometry(
            architecture="llama",
            layers=2,
            hidden=384,
            heads=12,
            kv_heads=12,
            head_dim=32,
            ffn=1536,
            vocab=1024,
            context_length=512,
            rms_eps=1e-5,
            windows=(None, None),
            ropes=(rope.plain(10000.0, 32),),
            rope_of=(0, 0),
            query_scale=32**-0.5,
            tied_embeddings=False,
        )
        path = tmp_path / f"{kind}.hgn2"
        synthetic_v2.write_v2(path, geometry, kind, silent)
        return path

    return make


@pytest.mark.parametrize("kind", synthetic.V2_FORMATS)
def test_a_synthetic_v2_file_is_whole(tmp_path: Path, kind: str) -> None:
    path = synthetic.make(kind, 30 * MIB, tmp_path, silent)
    file = open_v2(path)
    assert file.metadata.quantisation == synthetic_v2.FORMATS[kind]
    assert path.stat().st_size == pytest.approx(30 * MIB, rel=0.05)
    assert synthetic.make(kind, 30 * MIB, tmp_path, silent) == path
    assert list(tmp_path.iterdir()) == [path]


def test_formats_of_one_model(tmp_path: Path) -> None:
    v2 = synthetic.choose("v2-int4", 30 * MIB)
    path = synthetic.make("awq", 30 * MIB, tmp_path, silent, like="v2-int4")
    assert "as-v2-int4" in path.name
    config = json.loads((path / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (v2[0].hidden, v2[1])


@pytest.mark.parametrize("kind", synthetic.V2_FORMATS)
def test_ranks_read_their_own_ranges_and_no_more(kind: str, make_v2: Callable[[str], Path]) -> None:
    """Bytes as the kernel counts them. What every rank has is read by each, all else by one of them."""
    file = open_v2(make_v2(kind))
    weights = [entry for entry in file.entries.values() if not entry.is_text]
    whole = sum(entry.nbytes for entry in weights)
    for of in (1, 2, 3, 4):
        ranks = [load_ranks.read_rank(file, rank, of) for rank in range(of)]
        for figures in ranks:
            assert figures.wanted_bytes <= figures.asked_bytes < figures.wanted_bytes + 4096
        repeated = sum(entry.nbytes for entry in weights if not shards.is_shared(entry, of))
        scales = sum(
            plane.nbytes
            for entry in weights
            if shards.is_shared(entry, of) and entry.layout == "r8.v1" and entry.shard.axis == 1
            for plane in entry.planes
            if plane.name == "scales"
        )
        padding = sum(entry.nbytes - sum(plane.nbytes for plane in entry.planes) for entry in weights)
        found = sum(figures.wanted_bytes for figures in ranks)
        assert found == pytest.approx(whole + (of - 1) * (repeated + scales), abs=of * padding)
        assert of == 1 or max(figures.wanted_bytes for figures in ranks) < 0.8 * whole


def test_ranks_are_processes_that_start_at_once(make_v2: Callable[[str], Path]) -> None:
    path = make_v2("v2-int4")
    first, second = load_ranks.read_ranks(path, 2)
    assert first.wanted_bytes == second.wanted_bytes < path.stat().st_size
    assert first.read_s > 0
    with pytest.raises(ChildFailedError, match="sizes that divide are 1, 2, 3, 4, 6, 12"):
        load_ranks.read_ranks(path, 5)


@pytest.mark.parametrize(
    ("stored", "held"),
    [
        ("Q4_K", "int4"),
        ("gptq int4 g128", "int4"),
        ("awq int4 g128", "int4"),
        ("IQ4_NL", "int4"),
        ("int4", "int4"),
        ("Q8_0", "int8"),
        ("int8", "int8"),
        ("BF16", numbers()),
        ("bf16", numbers()),
        ("F16", numbers()),
        ("fp8 e4m3 128x128", numbers()),
        ("Q6_K", numbers()),
    ],
)
def test_weights_are_held_in_as_many_bits_as_they_are_stored_in(stored: str, held: str) -> None:
    assert load_arms.held_as(stored) == held


def test_medians_and_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], held: list[int]
) -> None:
    """The arms take turns, each round from another one on; the second of two engines shares the first one's pages."""
    asked: list[str] = []
    starts: list[bool] = []

    def started(
        path: str, precision: str, threads: int, *, ahead: bool, on_hello: Callable[[], None]
    ) -> load_start.StartFigures:
        starts.append(ahead)
        asked.append(f"{Path(path).name.split('-')[1]} {precision}")
        on_hello()
        return load_start.StartFigures(len(asked), 0.5, 10.0 * len(asked), 100 * MIB, 20 * MIB)

    @contextlib.contextmanager
    def running(spec: object) -> Iterator[tuple[int, load_start.StartFigures]]:
        yield 1, load_start.StartFigures(1, 0.5, 2, 100 * MIB, 20 * MIB)

    monkeypatch.setattr(load_arms, "start_ours", started)
    monkeypatch.setattr(load_arms, "running", running)
    monkeypatch.setattr(load_arms, "read_ranks", lambda path, of: [load_ranks.RankFigures(1.0, 9, 9, 0)] * of)
    monkeypatch.setattr(load_arms, "memory_of", lambda pid: {"Pss": 60 * MIB})
    command = ["--synthetic", "4MiB", "--formats", "v2-int4,awq", "--dir", str(tmp_path), "--cache", "warm"]
    assert load_arms.main([*command, "--runs", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert asked == ["v2 int4", "awq int4", "awq int4", "v2 int4"]
    v2, awq = report["medians"]
    assert (v2["load_s"], awq["load_s"], awq["first_token_s"]) == (2.5, 2.5, 25.0)
    assert v2["cached_share"] == 1.0
    assert [pair["ratio"] for pair in report["pairs"]] == [1.2]
    [ranks] = report["ranks"]
    assert [row["of"] for row in ranks["rows"]] == [1, 2]
    assert load_arms.main([*command, "--runs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("medians of 1 rounds")
    windows = [line.partition(": ")[0] for line in lines[1:3] if "import of torch lies" in line]
    assert windows == ["load s", "token s"], "it says what each time is of"
    assert report["windows"]["load_s"] in lines[1]
    assert "PSS 100 MiB alone, 120 MiB of two: 1.20" in lines[6]
    assert all(starts), "as a swap in a living daemon finds them"
    assert load_arms.main([*command, "--runs", "1", "--start", "both"]) == 0
    names = [line.split("  ")[0].rpartition(", ")[2] for line in capsys.readouterr().out.splitlines()[4:8]]
    assert names == ["spare", "new", "spare", "new"]
    assert starts[-4:] == [True, False, True, False]
    assert held == [], "and nobody's memory stays taken"


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        ([], 2, "either models' PATHs or --synthetic"),
        (["--synthetic", "4MiB", "--formats", "v2-int4,zip"], 2, "no format 'zip'; there are bf16"),
        (["/nowhere/at/all"], 1, "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_measured(
    arguments: list[str], status: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as stack:
        if status == 2:
            stack.enter_context(pytest.raises(SystemExit, match="2"))
        assert load_arms.main(arguments) == status
    assert named in capsys.readouterr().err


@pytest.mark.slow
def test_engines_of_several_formats(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "load", "--arms", "--synthetic", "60MiB", "--formats", "v2-int4,q4_k,v2-bf16,bf16"]
    assert halogend([*command, "--dir", str(tmp_path), "--runs", "1", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert len(report["medians"]) == 8
    for row in report["medians"]:
        assert 0 < row["load_s"] < row["first_token_s"]
        assert row["cached_share"] == (1.0 if row["cache"] == "warm" else 0.0)
    assert {pair["arm"] for pair in report["pairs"]} == {ranks["arm"] for ranks in report["ranks"]}
    shared, repacked = (pair["ratio"] for pair in report["pairs"])
    assert 1.0 < shared < 2.0
    assert shared < repacked < 2.2  # nothing of its weights is shared, and no two engines hold exactly as much


def test_no_arm_always_comes_after_the_same_one() -> None:
    arms = [load_arms.Arm(name, Path(name), (), "int8") for name in "abcd"]
    rounds = [load_arms._from(arms, number) for number in range(4)]
    assert {order[0].name for order in rounds} == set("abcd")
    for order in rounds:
        assert sorted(arm.name for arm in order) == list("abcd")
    pairs = [(before.name, after.name) for order in rounds for before, after in pairwise(order)]
    for arm in "abcd":
        assert len({before for before, after in pairs if after == arm}) > 1


def test_every_arm_finds_memory_that_was_used_up_to_the_moment_time_is_taken_from(
    monkeypatch: pytest.MonkeyPatch, make_v2: Callable[[str], Path], held: list[int]
) -> None:
    """A host takes back within seconds what is free: of an engine, that is after its Hello."""
    path, found = make_v2("v2-int8"), []

    def start(*_: object, on_hello: Callable[[], None] = lambda: None, **__: object) -> load_start.StartFigures:
        found.append([*held])
        on_hello()
        found.append([*held])
        return load_start.StartFigures(1, 1, 1, 1, 1)

    monkeypatch.setattr(load_arms, "start_ours", start)
    monkeypatch.setattr(load_arms, "start_peer", start)
    for precision in ("int8", load_arms.PEER):
        load_arms._run(load_arms.Arm("a", path, (path,), precision), "warm", 0)
    assert found == [[(1 << 30) + 2 * path.stat().st_size], [], [], []]


@pytest.mark.parametrize(("free_mib", "wanted_mib", "found_mib"), [(10, 100, 0), (100, 100, 48), (100, 16, 16)])
def test_at_most_half_of_what_is_free_is_used(tmp_path: Path, free_mib: int, wanted_mib: int, found_mib: int) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal:  {1 << 20} kB\nMemFree:  {free_mib << 10} kB\n")
    used = UsedMemory(wanted_mib * MIB, meminfo)
    assert used.nbytes == found_mib * MIB
    used.release()
    used.release()


def test_what_an_engine_finds_is_free_before_it_is_told(make_v2: Callable[[str], Path]) -> None:
    told: list[float] = []
    spec = load_start.engine_spec(str(make_v2("v2-int8")), "int8", 0)
    with DrivenEngine(spec, ahead=True, on_hello=lambda: told.append(time.monotonic())) as engine:
        assert engine.hello_s <= told[0] <= engine.asked_s
