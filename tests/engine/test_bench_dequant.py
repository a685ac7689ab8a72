"""The table of decoding speeds: every type has its row."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

from halogend.checkpoint.gguf_types import DECODABLE, GgmlType
from halogend.cli.main import main as halogend
from halogend.engine.bench import dequant

NO_PEER = {"F32", "F64", "Q1_0"}


@pytest.mark.slow
def test_figures_of_every_type(capfd: pytest.CaptureFixture[str]):
    assert halogend(["bench", "dequant", "--elements", "1024", "--runs", "1", "--json"]) == 0
    figures = json.loads(capfd.readouterr().out)
    assert set(figures) == {kind.name for kind in DECODABLE}
    for name, row in figures.items():
        assert row["ours"] > 0
        assert row["bf16"] > 0
        kind = GgmlType[name]
        assert row["ours_bytes"] / row["ours"] == pytest.approx(kind.block_bytes / kind.block_elements)
        assert (row["gguf"] is None) == (name in NO_PEER), name


@pytest.fixture
def own_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("own_threads")
def test_the_table(capsys: pytest.CaptureFixture[str]):
    assert dequant.main(["--elements", "256", "--runs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["type", "ours", "M/s", "GB/s", "bf16", "M/s", "gguf", "M/s", "ratio"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows.keys() == {kind.name for kind in DECODABLE}
    assert all((row[-1] == "-") == (name in NO_PEER) for name, row in rows.items())


@pytest.mark.parametrize("kind", sorted(DECODABLE, key=lambda kind: kind.number), ids=lambda kind: kind.name)
def test_the_blocks_are_ordinary_numbers(kind: GgmlType):
    blocks = dequant.random_blocks(kind, 20)
    out = torch.empty(20 * kind.block_elements)
    dequant.dequantise(kind, blocks.view(-1), out)
    assert out.isfinite().all()
