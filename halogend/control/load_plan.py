"""What a load will read, hold and take, told before it begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from halogend.checkpoint.adoption import Adoption, adopt
from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.files import stat_of
from halogend.checkpoint.sizes import VALUE_BYTES, mapped_bytes, packed_names, read_bytes, unpackable, weight_bytes
from halogend.config.facts import MappedFile

# Of one thread, measured with quantised files: what is decoded and packed in a second. An estimate; the
# receipt of a load says what it took.
_ELEMENTS_PER_S = {"fp32": 180e6, "bf16": 220e6, "fp16": 220e6, "int8": 200e6, "fp8": 200e6, "int4": 110e6}
_READ_BYTES_PER_S = 1e9
_START_S = 3.0  # processes, imports, tokenizer, warm-up


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """`read_bytes` of files, whose matrices are `stored` so, become `held_bytes` of weights in `precision`: `mapped`
    are those that stay where the files lie, `repacked_bytes` what is packed anew of what is read.
    `requantised`: what was rounded already is rounded once more. `expected_s` is until it serves."""

    stored: str
    precision: str
    read_bytes: int
    held_bytes: int
    requantised: bool
    expected_s: float
    repacked_bytes: int = 0
    mapped: tuple[MappedFile, ...] = ()

    @property
    def mapped_bytes(self) -> int:
        return sum(each.bytes for each in self.mapped)

    @property
    def own_bytes(self) -> int:
        """What nobody else could share."""
        return self.held_bytes - self.mapped_bytes

    def view(self) -> dict[str, Any]:
        """JSON-ready."""
        return {key: value for key, value in asdict(self).items() if key != "mapped"} | {
            "mapped_bytes": self.mapped_bytes
        }


@dataclass(frozen=True, slots=True)
class Ways:
    """How a model is to be loaded: weights in `precision`, products in `compute` (fp32, bf16, fp16), by so many
    `threads`, and the most of the weights that may stay mapped. `on_accelerator`: they go to the memory of one."""

    precision: str
    compute: str
    threads: int
    mmap_threshold: float
    on_accelerator: bool = False


def plan_load(checkpoint: Checkpoint, ways: Ways) -> LoadPlan:
    """Raises CheckpointError naming a weight that cannot be held in the precision, and for a file that is gone."""
    precision = ways.precision
    if (name := unpackable(checkpoint, precision)) is not None:
        columns = checkpoint.weights[name].columns
        message = (
            f"{checkpoint.path}: precision {precision} holds weights in groups of 32 columns, and"
            f" {name!r} has {columns}; take int8 or bf16"
        )
        raise CheckpointError(TYPE_UNSUPPORTED, message)
    adoption = adopt(checkpoint, precision, ways.mmap_threshold)
    mapped = _mapped_files(checkpoint, adoption)
    packed = [checkpoint.weights[name] for name in packed_names(checkpoint, adoption)]
    read = read_bytes(checkpoint)
    packing_s = sum(weight.rows * weight.columns for weight in packed) / _ELEMENTS_PER_S[precision] / ways.threads
    own_bytes = weight_bytes(checkpoint, precision, ways.compute, adoption, decodes_table=ways.on_accelerator)
    return LoadPlan(
        stored=checkpoint.quantisation,
        precision=precision,
        read_bytes=read,
        held_bytes=own_bytes + sum(each.bytes for each in mapped),
        requantised=checkpoint.is_quantised and precision not in VALUE_BYTES and bool(_rounded(checkpoint, adoption)),
        expected_s=round(_START_S + packing_s + read / _READ_BYTES_PER_S, 1),
        repacked_bytes=sum(weight.nbytes for weight in packed),
        mapped=mapped,
    )


def _rounded(checkpoint: Checkpoint, adoption: Adoption) -> list[str]:
    """Matrices of the layers that are packed, not taken as they lie."""
    return [name for name in packed_names(checkpoint, adoption) if name.startswith("blk.")]


def _mapped_files(checkpoint: Checkpoint, adoption: Adoption) -> tuple[MappedFile, ...]:
    sizes = mapped_bytes(checkpoint, adoption)
    status = {file: stat_of(checkpoint.files[file]) for file in sizes}
    return tuple(MappedFile(status[file].st_dev, status[file].st_ino, sizes[file]) for file in sorted(sizes))
