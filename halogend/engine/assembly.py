"""What computes a model's steps, put together for the place where it lies: the pool, the runner, who chooses tokens.

    host      KvCache         ModelRunner    tokens are chosen by the host's sampler, between two steps
    device    DeviceKvCache   DeviceRunner   tokens are chosen there; a step is planned while another runs

Triton's interpreter on the host is put together as a device is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from halogen_kernels import Kernels

from halogend.engine.device.choosing import DeviceChooser
from halogend.engine.device.graphs import CudaRecorder, DecodeGraphs
from halogend.engine.device.place import Place
from halogend.engine.device.pool import DeviceKvCache, KvForm
from halogend.engine.device.runner import DeviceRunner
from halogend.engine.interface import Chooser, Runner
from halogend.engine.kvcache import KvCache
from halogend.engine.limits import sched_limits
from halogend.engine.models.decoder import Decoder
from halogend.engine.progress import Progress
from halogend.engine.runner import ModelRunner
from halogend.engine.warmup import Rehearsing, Room, go_through, most_rows, rehearse_prompts
from halogend.sched.errors import InvariantError
from halogend.sched.layout import KvLayout
from halogend.wire.specs import EngineSpec

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
KV_DTYPES = DTYPES | {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
GRAPHS, LAUNCHED = "graphs", "launched"


class Pool(Protocol):
    """As much of a pool as others ask of it."""

    block_bytes: int
    reserve_blocks: int

    @property
    def touched_bytes(self) -> int: ...


class Assembled(Runner, Rehearsing, Protocol):
    """A runner that can go through its largest steps before it serves."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """`block_count` of the pool's blocks may be used at first. `graphs` are there where decode steps are recorded."""

    runner: Assembled
    pool: Pool
    block_count: int
    place: Place
    chooser: Chooser | None = None
    steps_ahead: int = 0
    graphs: DecodeGraphs | None = None

    @property
    def names(self) -> dict[str, str]:
        """How decode steps are run and tokens chosen, for status, where that is not the host's way."""
        if self.chooser is None:
            return {}
        if self.graphs is None:
            how = f"{LAUNCHED}: kernels are interpreted"
        else:
            how = f"{LAUNCHED}: {self.graphs.reason}" if self.graphs.reason else GRAPHS
        return {"decode_steps": how}


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Of a pool: how many may be used at first, are reserved, and are there before it serves."""

    count: int
    reserve: int
    floor: int


def assemble(spec: EngineSpec, model: Decoder, kernels: Kernels, place: Place, progress: Progress) -> Assembly:
    """Raises OSError if the pool's address range cannot be reserved, torch's OutOfMemoryError if the device has no
    memory for its floor, InvariantError for a pool that holds nothing."""
    geometry, groups = model.geometry, model.groups
    dtype = KV_DTYPES[spec.kv_cache_dtype]
    form = KvForm(groups.layers_per_table, geometry.kv_heads, geometry.head_dim, dtype)
    blocks = _blocks(spec, form.block_bytes, len(groups.tables))
    if not place.runs_like_a_device:
        width = 2 * geometry.kv_heads * geometry.head_dim
        host = KvCache(groups.layers_per_table, width, dtype, blocks.reserve, blocks.floor)
        return Assembly(ModelRunner(model, host, progress), host, blocks.count, place)
    if kernels.sample is None:
        raise InvariantError(f"the backend {spec.backend!r} chooses no tokens on {place.device}")
    cache = DeviceKvCache(form, place, blocks.reserve, blocks.floor)
    graphs = None if place.is_host else DecodeGraphs(model, cache, CudaRecorder(), spec.limits.max_model_len)
    return Assembly(
        runner=DeviceRunner(model, cache, progress, place, graphs),
        pool=cache,
        block_count=blocks.count,
        place=place,
        chooser=DeviceChooser(place, kernels.sample),
        steps_ahead=1,
        graphs=graphs,
    )


class WarmUp:
    """The largest steps, gone through in two parts, and decode steps recorded. `took_s` is how long that took.
    Interpreted kernels take no memory to speak of and a thousand times as long: there it is one token."""

    def __init__(
        self, assembly: Assembly, spec: EngineSpec, layout: KvLayout, kernels: Kernels, progress: Progress
    ) -> None:
        pool = assembly.pool
        touched = min(assembly.block_count, pool.touched_bytes // pool.block_bytes)
        self._assembly = assembly
        self._room = Room(touched, spec.limits.max_model_len, assembly.place.device)
        self._layout = layout
        self._limits = sched_limits(spec.limits)
        self._kernels = kernels
        self._bump = progress.bump
        self.took_s = 0.0

    def rehearse_prompts(self) -> None:
        """Needs the weights of the model's `sample_layers` only."""
        if self._assembly.place.is_interpreted:
            return
        with self._timed():
            sizes = self._kernels.built_sizes(most_rows(self._room, self._limits))
            rehearse_prompts(self._assembly.runner, self._room, self._layout, self._limits, sizes)

    def go_through(self) -> None:
        """The rest, with all weights."""
        max_batch = 1 if self._assembly.place.is_interpreted else self._limits.max_batch
        with self._timed():
            go_through(self._assembly.runner, self._room, self._layout, max_batch)
            if self._assembly.graphs is not None:
                self._assembly.graphs.prepare(max_batch, self._bump)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took_s += time.monotonic() - began


def _blocks(spec: EngineSpec, block_bytes: int, tables: int) -> _Blocks:
    count = spec.limits.pool_bytes // block_bytes
    if count < 1 + tables:
        raise InvariantError(
            f"a pool of {spec.limits.pool_bytes} bytes holds no block of {block_bytes} bytes for each of"
            f" {tables} tables beside the reserved one"
        )
    reserve = max(count, spec.pool_reserve_bytes // block_bytes)
    return _Blocks(count, reserve, min(count, max(1 + tables, spec.pool_floor_bytes // block_bytes)))
