"""The operators a model is made of, behind one seam, with one implementation per backend.

Owns the arithmetic of a layer: linear maps with packed and with quantised weights, mixtures of
experts, norms, rotary positions, gated activations, KV writes and paged attention. `select` picks a
backend once, when a model is loaded; the result says by name what was picked. `reference` is the
definition of every operator, in plain torch.

Must never know a model's architecture, a checkpoint, a scheduler or a request: it gets tensors and
numbers.
"""

from halogen_kernels.formats import (
    FP8_ROWS,
    GROUP_COLUMNS,
    INT4_TILES,
    INT8_ROWS,
    WEIGHT_FORMATS,
    WeightFormat,
    packed_bytes,
)
from halogen_kernels.seam import Kernels
from halogen_kernels.selection import BACKENDS, select
from halogen_kernels.values import (
    Activation,
    AttentionShape,
    ExpertWeights,
    LinearWeight,
    NormWeight,
    Span,
    StoredPart,
    Workspace,
)

__all__ = [
    "BACKENDS",
    "FP8_ROWS",
    "GROUP_COLUMNS",
    "INT4_TILES",
    "INT8_ROWS",
    "WEIGHT_FORMATS",
    "Activation",
    "AttentionShape",
    "ExpertWeights",
    "Kernels",
    "LinearWeight",
    "NormWeight",
    "Span",
    "StoredPart",
    "WeightFormat",
    "Workspace",
    "packed_bytes",
    "select",
]
