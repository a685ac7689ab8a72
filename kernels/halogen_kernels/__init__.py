"""The operators a model is made of, behind one seam, with one implementation per backend.

Owns the arithmetic of a layer: packed linear maps, norms, rotary positions, gated activations,
KV writes and paged attention. `select` picks a backend once, when a model is loaded; the result
says by name what was picked. `reference` is the definition of every operator, in plain torch.

Must never know a model's architecture, a checkpoint, a scheduler or a request: it gets tensors and
numbers.
"""

from halogen_kernels.seam import (
    Activation,
    AttentionShape,
    Kernels,
    LinearWeight,
    NormWeight,
    Span,
    Workspace,
)
from halogen_kernels.selection import BACKENDS, select

__all__ = [
    "BACKENDS",
    "Activation",
    "AttentionShape",
    "Kernels",
    "LinearWeight",
    "NormWeight",
    "Span",
    "Workspace",
    "select",
]
