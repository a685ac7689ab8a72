"""From an EngineSpec to a runner that may serve: weights, pool, warm-up, top to bottom in `load`.

Runs in the loader's thread with one intra-operator thread, so that it never holds up an engine that
serves beside it. Must never know which process it is in or whom it reports to: it moves a Progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from halogen_kernels import Kernels, select

from halogend.checkpoint.errors import FILE_UNREADABLE, CheckpointError
from halogend.checkpoint.formats import resolve_format
from halogend.checkpoint.geometry import Geometry, read_geometry
from halogend.checkpoint.gguf import GgufHeader, read_header
from halogend.checkpoint.inventory import check_tensors
from halogend.checkpoint.kv_groups import KvGroups
from halogend.engine.embedding import Embedding
from halogend.engine.interface import Loaded
from halogend.engine.kvcache import KvCache
from halogend.engine.models import decoder
from halogend.engine.models.layers import LayerRecipe, LayerWeights
from halogend.engine.progress import Progress
from halogend.engine.runner import ModelRunner
from halogend.engine.tensors import GgufTensors
from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sched.errors import InvariantError
from halogend.sched.layout import KvLayout
from halogend.sched.step import StepItem, StepPlan
from halogend.wire.messages import EngineSpec

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_WARMUP_TOKENS = 64
_MOST_LOAD_THREADS = 4


def load(spec: EngineSpec, progress: Progress) -> Loaded:
    """Everything between a path and a model that has answered once.

    Raises CheckpointError for whatever is wrong with the file, OSError if the pool's address range
    cannot be reserved, InvariantError for a spec that the daemon should have refused.
    """
    torch.set_num_threads(1)
    started = time.monotonic()
    resolve_format(spec.path, spec.load_format)
    dtype = DTYPES[spec.precision]
    kernels = select(spec.backend, dtype, flash_attention=spec.flash_attention)
    with _open(Path(spec.path)) as (descriptor, header):
        geometry = read_geometry(header)
        check_tensors(header, geometry)
        progress.begin("loading", _read_bytes(header, geometry))
        source = GgufTensors(descriptor, header, dtype, kernels.pack_linear, progress.advance)
        model, weights_bytes = _load_model(geometry, kernels, dtype, source, _load_threads(spec))
    cache, block_count = _make_cache(spec, geometry, model.groups)
    loaded = time.monotonic()
    progress.begin("warming")
    runner = ModelRunner(model, cache, progress)
    layout = KvLayout(model.groups.windows)
    _warm_up(runner, block_count, layout)
    return Loaded(
        runner=runner,
        weights_bytes=weights_bytes,
        pool_bytes=block_count * cache.block_bytes,
        layout=layout,
        block_bytes=cache.block_bytes,
        block_count=block_count,
        reserve_blocks=cache.reserve_blocks,
        load_s=loaded - started,
        warmup_s=time.monotonic() - loaded,
        kernels=dict(kernels.names),
    )


@contextmanager
def _open(path: Path) -> Iterator[tuple[int, GgufHeader]]:
    """The open file and its header, which must be one file, unchanged, until the end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(FILE_UNREADABLE, f"{path}: cannot be read: {error.strerror}") from error
    try:
        before = _fingerprint(os.fstat(descriptor))
        header = read_header(path)
        yield descriptor, header
        if _fingerprint(os.fstat(descriptor)) != before or header.file_size != before[0]:
            raise CheckpointError(FILE_UNREADABLE, f"{path}: changed while it was loaded; load it again")
    finally:
        os.close(descriptor)


def _fingerprint(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _read_bytes(header: GgufHeader, geometry: Geometry) -> int:
    """What loading reads of the file: a tied table is read twice, as it is and as the output matrix."""
    total = sum(tensor.nbytes for tensor in header.tensors.values())
    return total + header.tensors[decoder.EMBEDDING].nbytes * geometry.tied_embeddings


def _load_threads(spec: EngineSpec) -> int:
    if spec.load_threads:
        return spec.load_threads
    cores = len(os.sched_getaffinity(0))
    return 1 if cores <= 2 else min(_MOST_LOAD_THREADS, cores // 2)


def _load_model(
    geometry: Geometry, kernels: Kernels, dtype: torch.dtype, source: GgufTensors, threads: int
) -> tuple[decoder.Decoder, int]:
    recipe = decoder.make_recipe(geometry, kernels, dtype)
    embedding = source.embedding(decoder.EMBEDDING)
    output = source.linear([decoder.EMBEDDING if geometry.tied_embeddings else decoder.OUTPUT])
    weights = decoder.DecoderWeights(
        embed=embedding,
        layers=_load_layers(recipe, source, geometry.layers, threads),
        norm=kernels.pack_norm(source.vector(decoder.OUTPUT_NORM), geometry.rms_eps),
        output=output,
    )
    rotaries = decoder.make_rotaries(geometry, source)
    return decoder.Decoder(geometry, recipe, weights, rotaries), _weights_bytes(embedding, weights)


def _weights_bytes(embedding: Embedding, weights: decoder.DecoderWeights) -> int:
    return embedding.nbytes + weights.output.nbytes + sum(layer.nbytes for layer in weights.layers)


def _load_layers(recipe: LayerRecipe, source: GgufTensors, count: int, threads: int) -> tuple[LayerWeights, ...]:
    def build(index: int) -> LayerWeights:
        return recipe.build(source, index)

    if threads == 1:
        return tuple(build(index) for index in range(count))
    # New threads inherit this one's niceness; torch counts intra-operator threads for each.
    with ThreadPoolExecutor(threads, "load", initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return tuple(pool.map(build, range(count)))


def _make_cache(spec: EngineSpec, geometry: Geometry, groups: KvGroups) -> tuple[KvCache, int]:
    """The pool and how many of its blocks may be used at first."""
    dtype = DTYPES[spec.kv_cache_dtype]
    width = 2 * geometry.kv_heads * geometry.head_dim
    block_bytes = groups.layers_per_table * width * dtype.itemsize * BLOCK_TOKENS
    count = spec.limits.pool_bytes // block_bytes
    if count < 1 + len(groups.tables):
        raise InvariantError(
            f"a pool of {spec.limits.pool_bytes} bytes holds no block of {block_bytes} bytes for each of"
            f" {len(groups.tables)} tables beside the reserved one"
        )
    reserve = max(count, spec.pool_reserve_bytes // block_bytes)
    return KvCache(groups.layers_per_table, width, dtype, reserve), count


def _warm_up(runner: ModelRunner, block_count: int, layout: KvLayout) -> None:
    """One prompt chunk and one decode step, so that the first request finds everything built."""
    logical = min((block_count - 1) // layout.tables, blocks_for(_WARMUP_TOKENS))
    blocks = [range(1 + table * logical, 1 + (table + 1) * logical) for table in range(layout.tables)]
    prompt = logical * BLOCK_TOKENS - 1
    slots = torch.zeros(1, dtype=torch.int64)
    chunk = StepItem(0, 0, 0, (0,) * prompt, from_slot=False, blocks=blocks, samples=True)
    token = StepItem(0, 0, prompt, (), from_slot=True, blocks=blocks, samples=True)
    for number, item in enumerate((chunk, token)):
        runner.forward(StepPlan(number, (item,)), slots)
