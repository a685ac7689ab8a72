"""What is still read while the largest steps are rehearsed, of a file that is used where it lies."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch
from support.engine_driver import engine_spec
from support.tiny_models import tiny_llama
from support.v2_models import as_v2

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine import loading
from halogend.engine.mapping import WeightMap
from halogend.engine.passing import Passing
from halogend.engine.progress import Progress
from halogend.engine.read_ahead import ReadAhead
from halogend.engine.runner import ModelRunner
from halogend.sched.step import StepPlan

PATIENCE_S = 60.0
QUANTISED = {"compute_dtype": "fp32", "kv_cache_dtype": "fp32"}


class Turns:
    """A load whose thread that reads waits with the output matrix for `rehearsed`. What happens is noted."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.happened: list[str] = []
        self.rehearsed = threading.Event()
        self.spec = engine_spec(path, precision="int8", mmap_threshold=1.0, load_threads=2, **QUANTISED)
        self.cut_to: int | None = None
        read, populate, rehearse, forward = Passing.read, WeightMap.populate, ModelRunner.rehearse, ModelRunner.forward

        def reading(passing: Passing, tensor: TensorInfo, start: int, nbytes: int) -> None:
            if tensor.name == "output":
                assert self.rehearsed.wait(PATIENCE_S)
            read(passing, tensor, start, nbytes)

        def mapping(weights: WeightMap, tensor: TensorInfo, start: int, nbytes: int) -> None:
            self.happened.append(f"{tensor.name.partition('.')[0]} mapped")
            populate(weights, tensor, start, nbytes)

        def rehearsing(runner: ModelRunner, plan: StepPlan, slots: torch.Tensor) -> None:
            rehearse(runner, plan, slots)
            self.happened.append("rehearsed")
            if self.cut_to is not None:
                os.truncate(path, self.cut_to)
            self.rehearsed.set()

        def forwarding(runner: ModelRunner, plan: StepPlan, slots: torch.Tensor) -> torch.Tensor:
            self.happened.append("gone through")
            return forward(runner, plan, slots)

        monkeypatch.setattr(Passing, "read", reading)
        monkeypatch.setattr(WeightMap, "populate", mapping)
        monkeypatch.setattr(ModelRunner, "rehearse", rehearsing)
        monkeypatch.setattr(ModelRunner, "forward", forwarding)


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turns:
    path = as_v2(tiny_llama(tmp_path / "a.gguf", extra_vocab=3000).path, tmp_path / "a.hgn2")
    return Turns(path, monkeypatch)


def test_prompts_are_rehearsed_while_the_output_matrix_is_read(turns: Turns) -> None:
    engine = loading.load(turns.spec, Progress())
    first, *_, last = [what for what in turns.happened if "blk" not in what]
    assert (first, last) == ("rehearsed", "gone through")
    assert "output mapped" in turns.happened
    assert turns.happened.index("output mapped") > turns.happened.index("rehearsed")
    assert engine.warmup_s > 0
    assert engine.load_s > 0


def test_a_file_cut_short_while_prompts_are_rehearsed_is_refused(turns: Turns) -> None:
    output = open_checkpoint(turns.path).weights["output"].pieces[0].encoded.tensors[0]
    turns.cut_to = output.offset
    with pytest.raises(CheckpointError, match="the file ends inside tensor 'output'") as caught:
        loading.load(turns.spec, Progress())
    assert caught.value.code == errors.TRUNCATED
    assert "gone through" not in turns.happened


def test_nothing_is_rehearsed_with_a_file_that_changed(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """To touch a page that it lost would end the process."""
    until = ReadAhead.until

    def cutting(ahead: ReadAhead, spans: int) -> None:
        until(ahead, spans)
        os.truncate(turns.path, 0)
        turns.rehearsed.set()

    monkeypatch.setattr(ReadAhead, "until", cutting)
    with pytest.raises(CheckpointError, match="changed while it was loaded"):
        loading.load(turns.spec, Progress())
    assert not {"rehearsed", "gone through"} & set(turns.happened)
