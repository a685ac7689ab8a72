"""A loop that is turned by hand."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from support.counting_runner import CountingRunner, make_loaded
from support.engine_client import EngineClient, make_engine_limits
from support.engine_driver import engine_spec

from halogend.engine.loop import Channels, EngineLoop
from halogend.engine.progress import Progress
from halogend.sched.step import StepPlan
from halogend.wire.channel import WorkerChannel

STEP_S = 0.1
_BLOCKS = 64


class TurnedLoop:
    """Its clock is moved by its steps and the test only. `ahead` is the depth of planning; `more` are fields of
    Loaded."""

    def __init__(self, ahead: int, **more: Any) -> None:
        self.now = 0.0
        turned = self

        class Slow(CountingRunner):
            def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
                turned.now += STEP_S
                return super().forward(plan, slot_tokens)

        self.runner = Slow(_BLOCKS)
        pairs = [socket.socketpair() for _ in range(2)]
        ends = [(WorkerChannel(ours), WorkerChannel(theirs)) for ours, theirs in pairs]
        self.channels: Mapping[str, WorkerChannel] = {"control": ends[0][1], "data": ends[1][1]}
        self.client = EngineClient(ends[0][0], ends[1][0])
        loaded = make_loaded(self.runner, block_count=_BLOCKS, reserve_blocks=_BLOCKS, steps_ahead=ahead, **more)
        spec = engine_spec(Path("unused"), limits=make_engine_limits(), max_model_len=128)
        self.loop = EngineLoop(Channels(**self.channels), loaded, spec, Progress(), lambda: self.now)

    @property
    def steps(self) -> int:
        return len(self.runner.plans)

    def close(self) -> None:
        for channel in (*self.channels.values(), self.client.control, self.client.data):
            channel.close()
