"""From an EngineSpec to a runner that may serve: weights, pool, warm-up, top to bottom in `load`.

    reads ahead   | layers ...                    | output matrix    |
    loads         | the model, layer by layer | pool | prompts are rehearsed | everything is gone through

The second line waits for the first where it needs what is not there yet: of a v2 file that is used where it lies, the
largest steps need one layer, and what is gone through then needs all.

Runs in the loader's thread with one intra-operator thread, so that it never holds up an engine that
serves beside it. Must never know which process it is in or whom it reports to: it moves a Progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from halogen_kernels import Kernels, select
from halogen_kernels.formats import WeightFormat

from halogend.checkpoint.adoption import Adoption, adopt, looked_up, output_precision
from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.sizes import VALUE_BYTES, mapped_bytes, read_bytes
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.adopted import Adopted
from halogend.engine.assembly import DTYPES, WarmUp, assemble
from halogend.engine.checking import check_share, checked_bytes
from halogend.engine.compiling import ready_kernels, shapes_of
from halogend.engine.device.place import Place, place_of
from halogend.engine.device.staging import WeightStaging
from halogend.engine.device.weights import DeviceSource, gathered, moved_embedding
from halogend.engine.files import open_files
from halogend.engine.interface import Loaded
from halogend.engine.mapping import WeightMap
from halogend.engine.memory import DevicePeak, Peak
from halogend.engine.models import decoder
from halogend.engine.models.layers import LayerRecipe, LayerWeights
from halogend.engine.models.rotary import Rotary
from halogend.engine.models.source import TensorSource
from halogend.engine.passing import Passing
from halogend.engine.progress import Progress
from halogend.engine.read_ahead import ReadAhead, Span
from halogend.engine.read_behind import ReadBehind
from halogend.engine.reading import Reading
from halogend.engine.tensors import Packing, WeightSource
from halogend.sched.layout import KvLayout
from halogend.wire.specs import EngineSpec

if TYPE_CHECKING:
    from halogen_kernels.triton.shapes import Shapes

_QUANTISED: dict[str, WeightFormat] = {"int8": "int8", "fp8": "fp8", "int4": "int4"}
_MOST_LOAD_THREADS = 4


def load(spec: EngineSpec, progress: Progress) -> Loaded:
    """Everything between a path and a model that has answered once.

    Raises CheckpointError for whatever is wrong with the file, OSError if the pool's address range cannot be
    reserved, StartRefusedError for a kernel that is missing, MemoryError if the device has not enough, PlaceError
    if it is not to be had, InvariantError for a spec that the daemon should have refused.
    """
    torch.set_num_threads(1)
    place = place_of(spec.device, spec.backend)
    place.enter()
    try:
        return _load(spec, place, progress)
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"on {spec.device}: {error}") from error


def _load(spec: EngineSpec, place: Place, progress: Progress) -> Loaded:
    started = time.monotonic()
    arithmetic = Arithmetic.of(spec, place)
    with ExitStack() as files:
        model, weights, reading = _read(spec, arithmetic, progress, files)
        assembly = assemble(spec, model, arithmetic.kernels, place, progress)
        layout = KvLayout(model.groups.windows)
        warm_up = WarmUp(assembly, spec, layout, arithmetic.kernels, progress)
        if reading is None:
            progress.begin("warming")
        peak = Peak() if place.is_host else DevicePeak(place.device)
        with nullcontext() if reading is None else reading.beside(model.sample_layers), peak.watched():
            warm_up.rehearse_prompts()
        if reading is not None:
            reading.finish()
            progress.begin("warming")
    with peak.watched():
        warm_up.go_through()
    pool = assembly.pool
    return Loaded(
        runner=assembly.runner,
        weights_bytes=weights.held_bytes,
        mapped_bytes=weights.mapped_bytes,
        pool_bytes=assembly.block_count * pool.block_bytes,
        layout=layout,
        block_bytes=pool.block_bytes,
        block_count=assembly.block_count,
        reserve_blocks=pool.reserve_blocks,
        load_s=time.monotonic() - started - warm_up.took_s,
        warmup_s=warm_up.took_s,
        kernels=arithmetic.kernels.names_for(model.shape) | assembly.names,
        peak=peak,
        chooser=assembly.chooser,
        steps_ahead=assembly.steps_ahead,
        recordings=assembly.graphs,
        behind=weights.behind,
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """`mapped_bytes` of those `held_bytes` lie in mapped files, and some of these are read when the model serves."""

    held_bytes: int
    mapped_bytes: int
    behind: ReadBehind


def _read(
    spec: EngineSpec, arithmetic: Arithmetic, progress: Progress, stack: ExitStack
) -> tuple[decoder.Decoder, _Weights, Reading | None]:
    """The model, the bytes of its weights, and what is still read of those that are used where they lie. What else
    reading needs is gone before the pool is touched: both together would be the most that the engine ever takes."""
    checkpoint = open_checkpoint(spec.path, spec.load_format)
    if not arithmetic.place.is_host:
        ready_kernels(spec, shapes_for(spec, checkpoint.geometry, arithmetic.dtype), progress)
    adoption = adopt(checkpoint, spec.precision, _mapped_share(spec, arithmetic.place))
    mapped = mapped_bytes(checkpoint, adoption)
    later = _later(spec, checkpoint, adoption, arithmetic.place)
    checked = checkpoint.v2 if spec.verify == "full" else None
    files = stack.enter_context(open_files(checkpoint, progress.bump))
    now_bytes = read_bytes(checkpoint) - sum(tensor.nbytes for tensor in later)
    progress.begin("loading", now_bytes + (0 if checked is None else checked_bytes(checked)))
    if checked is not None:
        check_share(checked, files.descriptors, load_threads(spec), progress.advance, share=(0, 1))
    weight_map = WeightMap(checkpoint.files, files.descriptors, mapped)
    adopted = Adopted(checkpoint, adoption, weight_map, files, progress.advance)
    source = WeightSource(checkpoint, files, arithmetic.packing, progress.advance, adopted)
    spans = _spans(checkpoint, adoption, later, in_order=spec.load_threads == 1)
    passing, yields = Passing(checkpoint.files, files.descriptors), spec.loader_niceness > 0
    ahead = ReadAhead(spans, weight_map, passing, progress.advance, yields=yields)
    reading = Reading(files, stack.enter_context(ahead), spans, stack)
    if spec.load_threads == 1:  # in order, and by nobody else
        ahead.finish()
    else:
        ahead.begin()
    model, held = _load_model(checkpoint, arithmetic, source, spec)
    behind = ReadBehind(later, checkpoint.files, files.descriptors)
    if arithmetic.place.runs_like_a_device or not mapped:
        reading.finish()
        return model, _Weights(held, 0, behind), None
    return model, _Weights(held, sum(mapped.values()), behind), reading


def shapes_for(spec: EngineSpec, geometry: Geometry, dtype: torch.dtype) -> Shapes:
    """The variants of device kernels that a model of this geometry leads to."""
    precisions = (spec.precision, output_precision(spec.precision))
    return shapes_of(geometry, dtype, [_format(each) for each in precisions], spec.kv_cache_dtype)


def _mapped_share(spec: EngineSpec, place: Place) -> float:
    """What is moved to a device is read where the file is mapped, all of it, and does not stay there. Kernels for
    devices put matrices together: of what they read here, they keep a copy."""
    if not place.runs_like_a_device:
        return spec.mmap_threshold
    return 0.0 if place.is_host else 1.0


def _later(spec: EngineSpec, checkpoint: Checkpoint, adoption: Adoption, place: Place) -> list[TensorInfo]:
    """What is read behind the load: tables that rows are looked up in where they are mapped. What goes to a device is
    needed whole, and a load by one thread reads all there is, in order, and nobody reads beside it."""
    if place.runs_like_a_device or spec.load_threads == 1:
        return []
    return [
        tensor
        for name in sorted(looked_up(checkpoint, adoption))
        for tensor in checkpoint.weights[name].pieces[0].encoded.tensors
    ]


def _spans(checkpoint: Checkpoint, adoption: Adoption, later: Sequence[TensorInfo], *, in_order: bool) -> list[Span]:
    """Of a v2 checkpoint: what will be looked at before it serves, in load order; where it is read `in_order`, nothing
    is asked for before it is taken."""
    if checkpoint.v2 is None:
        return []
    return [
        Span(tensor, stays=name in adoption.mapped)
        for name, weight in checkpoint.weights.items()
        for tensor in weight.pieces[0].encoded.tensors
        if tensor not in later and (name in adoption.mapped or not in_order)
    ]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a model is computed: products in `dtype`, with weights packed by `kernels`, those of the output
    matrix by `output_kernels`, and moved to where it is computed."""

    dtype: torch.dtype
    kernels: Kernels
    output_kernels: Kernels
    is_quantised: bool
    place: Place
    staging: WeightStaging

    @classmethod
    def of(cls, spec: EngineSpec, place: Place | None = None) -> Arithmetic:
        """On the host, unless a place is given."""
        place = place or Place()
        dtype = DTYPES[spec.compute_dtype]

        def kernels(precision: str) -> Kernels:
            return select(
                spec.backend,
                dtype,
                flash_attention=spec.flash_attention,
                weights=_format(precision),
                device=place.device,
            )

        output = kernels(output_precision(spec.precision))
        quantised = spec.precision not in VALUE_BYTES
        return cls(dtype, kernels(spec.precision), output, quantised, place, WeightStaging(place))

    @property
    def packing(self) -> Packing:
        return self._packing(self.kernels)

    @property
    def output_packing(self) -> Packing:
        return self._packing(self.output_kernels)

    def _packing(self, kernels: Kernels) -> Packing:
        """What is quantised is decoded exactly first."""
        pack, adopt_ = self.staging.packing(kernels.pack_linear), self.staging.adopting(kernels.adopt_linear)
        return Packing(pack, torch.float32 if self.is_quantised else self.dtype, adopt_)


def _format(precision: str) -> WeightFormat:
    return _QUANTISED.get(precision, "plain")


def load_threads(spec: EngineSpec) -> int:
    """How many threads load: as told, or half the cores, so that whoever serves keeps the rest."""
    if spec.load_threads:
        return spec.load_threads
    cores = len(os.sched_getaffinity(0))
    return 1 if cores <= 2 else min(_MOST_LOAD_THREADS, cores // 2)


def _load_model(
    checkpoint: Checkpoint, arithmetic: Arithmetic, source: WeightSource, spec: EngineSpec
) -> tuple[decoder.Decoder, int]:
    geometry, kernels, staging = checkpoint.geometry, arithmetic.kernels, arithmetic.staging
    placed = source if arithmetic.place.is_host else DeviceSource(source, staging)
    recipe = decoder.make_recipe(geometry, kernels, arithmetic.dtype, adjacent_pairs=checkpoint.adjacent_pairs)
    embedding = source.embedding("token_embd")
    if not arithmetic.place.is_host:
        embedding = moved_embedding(embedding, staging, arithmetic.dtype)
    output_name = "output" if "output" in checkpoint.weights else "token_embd"
    ropes = [rope.stretched(spec.stretched) for rope in geometry.ropes]
    weights = decoder.DecoderWeights(
        embed=gathered(embedding, kernels.embedding),
        layers=_load_layers(recipe, placed, geometry.layers, load_threads(spec)),
        norm=kernels.pack_norm(placed.norm("output_norm"), geometry.rms_eps),
        output=source.packed_by(arithmetic.output_packing).linear([output_name]),
        output_kernels=arithmetic.output_kernels,
        rotaries=tuple(Rotary.of(rope, geometry.head_dim, source).moved(staging.move) for rope in ropes),
    )
    held = embedding.nbytes + weights.output.nbytes + sum(layer.nbytes for layer in weights.layers)
    return decoder.Decoder(geometry, recipe, weights), held


def _load_layers(recipe: LayerRecipe, source: TensorSource, count: int, threads: int) -> tuple[LayerWeights, ...]:
    def build(index: int) -> LayerWeights:
        return recipe.build(source, index)

    if threads == 1:
        return tuple(build(index) for index in range(count))
    # New threads inherit this one's niceness; torch counts intra-operator threads for each.
    with ThreadPoolExecutor(threads, "load", initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return tuple(pool.map(build, range(count)))
