"""`convert`: a checkpoint of any format in, a v2 file out, read from top to bottom.

Weights are read, restated and written some rows at a time by several threads, so that memory does not grow with the
model. The new file has its name once all of it is written and on the disk, and not before.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.errors import FORMAT_CONTRADICTION, TYPE_UNSUPPORTED, UNWRITABLE, CheckpointError
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.surplus import Surplus
from halogend.checkpoint.v2.entries import TEXT_PREFIX, Entry
from halogend.checkpoint.v2.index import Quantisation, Source
from halogend.checkpoint.v2.layout import BYTES, MOST_BLOCK
from halogend.checkpoint.v2.reader import V2File, open_v2
from halogend.checkpoint.v2.threads import ending_together
from halogend.checkpoint.v2.verify import verify, verify_bytes
from halogend.checkpoint.v2.writer import Wanted, Writer
from halogend.engine.convert.comparing import compare
from halogend.engine.convert.meter import Meter, Report
from halogend.engine.convert.packing import packed
from halogend.engine.convert.policy import UNSTATED, Target, choose_policy, targets
from halogend.engine.convert.restated import Restated
from halogend.engine.convert.sources import dropped_tensors, fingerprint, source_files
from halogend.engine.convert.texts import texts_of
from halogend.engine.files import FileBytes, open_files

_FORMAT = "v2"
_MOST_THREADS = 8
_VALUES_AT_ONCE = 1 << 21  # by all threads: each has some copies of its share, of four bytes a value
_NOTE_BYTES = 1024  # of one source file, its name included


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was written: `kept` are the weights whose four-bit codes are the source's own, `dropped` its tensors that
    no weight is made of."""

    path: Path
    policy: Quantisation
    file_bytes: int
    weights: int
    kept: int
    dropped: tuple[str, ...]


def convert(  # noqa: PLR0913, PLR0917 (what can be chosen is the contract of the product, and has defaults)
    src_path: str | Path,
    dst_path: str | Path,
    format: str = _FORMAT,  # noqa: A002 (as above)
    block_size: int = 32,
    quant_policy: str = UNSTATED,
    validate: bool = True,
    drop_optimizer_state: bool = True,
    *,
    threads: int | None = None,
    part_bytes: int | None = None,
    report: Report | None = None,
) -> Conversion:
    """Writes the checkpoint at `src_path` (a directory, or a GGUF file) as the v2 file `dst_path`.

    `quant_policy` is one of policy.POLICIES; where it is not stated a source that is quantised keeps about its bits,
    and another becomes fp16. `block_size` is the rows of a tile of int4. `validate` compares what was written with
    the source, and reads all of it again. Optimizer state and gradients are left out, or refused. With `part_bytes`
    the data is cut into files of so many, beside a manifest.

    Raises CheckpointError for a source that cannot be read or held so, a disk that has too little room, and a result
    that is not what was to be written; ValueError for arguments that mean nothing. Nothing is left behind then, nor
    where a signal ends it, and what lay at `dst_path` lies there still.
    """
    _check_arguments(format, block_size)
    surplus = Surplus.TRAINING_DROPPED if drop_optimizer_state else Surplus.COPIES_DROPPED
    source = open_checkpoint(src_path, surplus=surplus)
    destination = _checked_destination(source, Path(dst_path))
    policy = choose_policy(source, quant_policy)
    model, weights = targets(source, policy)
    kind, texts = texts_of(source)
    dropped = dropped_tensors(source)
    cores = min(threads or len(os.sched_getaffinity(0)), _MOST_THREADS)
    meter = Meter(report)
    with Writer(destination, model=model, quantisation=policy, block=block_size, part_bytes=part_bytes) as writer:
        notes = len(json.dumps(dropped)) + _NOTE_BYTES * (1 + len(source.files) + 1)
        writer.plan([*(each.wanted for each in weights), *_wanted_texts(texts)], notes)
        for name, raw in texts.items():
            writer.write(TEXT_PREFIX + name, 0, raw)
        with open_files(source, lambda: None) as files:
            job = _Job(source, files, writer, weights, meter, cores)
            origin, kept = job.run()
            if validate:
                compare(writer, weights, Restated(source, files), destination)
        meter.begin("hashing", _hashed_bytes(tuple(writer.entries.values())))
        writer.seal(kind, origin, dropped, threads=cores, advance=meter.advance)
        if validate:
            _verify(writer.sealed(), destination, cores, meter)
        writer.publish()
    file_bytes = sum(path.stat().st_size for path in open_v2(destination).all_files)
    return Conversion(destination, policy, file_bytes, len(weights), kept, dropped)


def _check_arguments(format_: str, block_size: int) -> None:
    if format_ != _FORMAT:
        raise ValueError(f"format is {format_!r}; {_FORMAT} is the only one that is written")
    if not 1 <= block_size <= MOST_BLOCK:
        raise ValueError(f"block_size is {block_size}; 1 to {MOST_BLOCK} are possible")


def _checked_destination(source: Checkpoint, destination: Path) -> Path:
    if source.format == _FORMAT:
        what = "is a v2 checkpoint already; convert what it was made of"
        raise CheckpointError(FORMAT_CONTRADICTION, f"{source.path}: {what}")
    if destination.is_dir():
        raise CheckpointError(UNWRITABLE, f"{destination}: is a directory; a file is to be written there")
    if destination.exists() and any(destination.samefile(path) for path in source_files(source)):
        raise CheckpointError(UNWRITABLE, f"{destination}: is the source itself; name another file")
    return destination


def _wanted_texts(texts: Mapping[str, bytes]) -> Iterator[Wanted]:
    return (Wanted(TEXT_PREFIX + name, PlainType.U8, (len(raw),), BYTES) for name, raw in texts.items())


def _hashed_bytes(entries: Sequence[Entry]) -> int:
    """Each tensor, and the chunks from the first to the end of the last in each part."""
    extents: dict[int, tuple[int, int]] = {}
    for entry in entries:
        start, _ = extents.get(entry.part, (entry.offset, 0))
        extents[entry.part] = (start, entry.end)
    return sum(entry.nbytes for entry in entries) + sum(end - start for start, end in extents.values())


def _verify(sealed: V2File, path: Path, threads: int, meter: Meter) -> None:
    """Before what lies at `path` is written over."""
    meter.begin("verifying", verify_bytes(sealed))
    for fault in verify(sealed, threads, meter.advance):
        raise CheckpointError(fault.code, f"{path}: was not written: {fault.message}")


class _Slice(NamedTuple):
    """Rows of an entry that are made at once."""

    entry: Entry
    target: Target
    first: int
    rows: int


class _Job:
    """The reading and writing of one conversion's weights."""

    def __init__(
        self,
        source: Checkpoint,
        files: FileBytes,
        writer: Writer,
        weights: tuple[Target, ...],
        meter: Meter,
        threads: int,
    ) -> None:
        self._source = source
        self._restated = Restated(source, files)
        self._writer = writer
        self._weights = weights
        self._meter = meter
        self._threads = threads

    def run(self) -> tuple[Source, int]:
        """Where it came from, and how many weights kept their codes. The source is hashed meanwhile."""
        paths = source_files(self._source)
        entries = self._writer.entries
        written = sum(entries[target.wanted.name].nbytes for target in self._weights)
        self._meter.begin("converting", written + sum(path.stat().st_size for path in paths))
        pool = ThreadPoolExecutor(self._threads, "convert", initializer=torch.set_num_threads, initargs=(1,))
        with ending_together(pool, self._meter.advance) as advance:
            hashed = pool.map(lambda path: fingerprint(path, advance), paths)
            kept = {name for name, was_kept in pool.map(self._convert, self._slices()) if was_kept}
            files = tuple(hashed)
        return Source(format=self._source.format, quantisation=self._source.quantisation, files=files), len(kept)

    def _slices(self) -> Iterator[_Slice]:
        for target in self._weights:
            entry = self._writer.entries[target.wanted.name]
            unit = math.lcm(entry.block, self._restated.unit(target.source))
            at_once = _VALUES_AT_ONCE // self._threads // entry.columns
            step = max(1, at_once // unit) * unit
            for first in range(0, entry.rows, step):
                yield _Slice(entry, target, first, min(step, entry.rows - first))

    def _convert(self, slice_: _Slice) -> tuple[str, bool]:
        entry, target, first, rows = slice_
        try:
            parts, kept = packed(entry, target.source, first, rows, self._restated)
        except ValueError as error:
            message = f"{self._source.path}: weight {entry.name!r} cannot be converted: {error}"
            raise CheckpointError(TYPE_UNSUPPORTED, message) from error
        for plane, part in zip(entry.planes, parts, strict=True):
            each = plane.nbytes // plane.shape[0]
            self._writer.write(entry.name, plane.offset + first // entry.block * each, _bytes_of(part))
            self._meter.advance(part.nbytes)
        return entry.name, kept


def _bytes_of(part: Tensor) -> memoryview:
    return part.contiguous().view(-1).view(torch.uint8).numpy().data
