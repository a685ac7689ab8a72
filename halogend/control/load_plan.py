"""What a load will read, hold and take, told before it begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.sizes import VALUE_BYTES, read_bytes, unpackable, weight_bytes

# Of one thread, measured with quantised files: what is decoded and packed in a second. An estimate; the
# receipt of a load says what it took.
_ELEMENTS_PER_S = {"fp32": 180e6, "bf16": 220e6, "int8": 200e6, "int4": 110e6}
_READ_BYTES_PER_S = 1e9
_START_S = 3.0  # processes, imports, tokenizer, warm-up


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """`read_bytes` of files, whose matrices are `stored` so, become `held_bytes` of weights in `precision`.
    `requantised`: what was rounded already is rounded once more. `expected_s` is until it serves."""

    stored: str
    precision: str
    read_bytes: int
    held_bytes: int
    requantised: bool
    expected_s: float

    def view(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def plan_load(checkpoint: Checkpoint, precision: str, compute: str, threads: int) -> LoadPlan:
    """Raises CheckpointError naming a weight that cannot be held in `precision`. `compute` is the number
    format of products, `threads` how many load."""
    if (name := unpackable(checkpoint, precision)) is not None:
        columns = checkpoint.weights[name].columns
        message = (
            f"{checkpoint.path}: precision {precision} holds weights in groups of 32 columns, and"
            f" {name!r} has {columns}; take int8 or bf16"
        )
        raise CheckpointError(TYPE_UNSUPPORTED, message)
    read = read_bytes(checkpoint)
    elements = sum(weight.rows * weight.columns for weight in checkpoint.weights.values())
    return LoadPlan(
        stored=checkpoint.quantisation,
        precision=precision,
        read_bytes=read,
        held_bytes=weight_bytes(checkpoint, precision, compute),
        requantised=checkpoint.is_quantised and precision not in VALUE_BYTES,
        expected_s=round(_START_S + elements / _ELEMENTS_PER_S[precision] / threads + read / _READ_BYTES_PER_S, 1),
    )
