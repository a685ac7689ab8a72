"""Contradictions between the kernels of a model and where it runs: those that the document says by itself."""

from __future__ import annotations

from collections.abc import Iterator

from halogend.config.codes import Code
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document, ModelConfig

_PROCESSOR, _ANY = "cpu", "auto"


def check_kernels(document: Document, places: Places) -> Iterator[Problem]:
    """Of each model."""
    for index, model in enumerate(document.models):
        path, backend = f"models[{index}].kernels", model.kernels.backend
        accelerator = _accelerator(model)
        if accelerator is not None and backend in ("cpu", "reference"):
            message = f"`kernels.backend` {backend} runs on processors, and `device` names {accelerator}"
            yield places.problem(Code.KERNELS, f"{path}.backend", message, "write auto or triton")
        elif not model.kernels.flash_attention and (accelerator is not None or backend == "triton"):
            message = "`kernels.backend` triton has fused attention only, and `flash_attention` is off"
            hint = "leave it on, or take a processor with the backend cpu or reference"
            yield places.problem(Code.KERNELS, f"{path}.flash_attention", message, hint)


def _accelerator(model: ModelConfig) -> str | None:
    """The first that the model names."""
    kinds = {ref.id: ref.id.partition(":")[0] for ref in model.device}
    return next((id_ for id_, kind in kinds.items() if kind not in (_PROCESSOR, _ANY)), None)
