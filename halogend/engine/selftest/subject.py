"""What is tried, and the judgement of one result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from halogen_kernels import Kernels, LinearWeight, WeightFormat, reference, select
from torch import Tensor

_ROUNDING: Mapping[torch.dtype, float] = MappingProxyType(
    {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 0.0}
)
_WIDE_ROUNDING = 2.0**-20
_NAMES: Mapping[torch.dtype, str] = MappingProxyType(
    {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
)
EXACT = reference.table()

Sizes = Literal["small", "medium", "large"]
_ROW_COUNTS: Mapping[Sizes, tuple[int, ...]] = MappingProxyType(
    {"small": (1, 5, 17), "medium": (1, 5, 16, 40), "large": (1, 5, 16, 17, 200)}
)
_WIDTHS: Mapping[Sizes, tuple[tuple[int, int], ...]] = MappingProxyType(
    {
        "small": ((64, 96), (160, 72)),
        "medium": ((256, 608), (576, 160)),
        "large": ((1024, 3008), (4096, 1056)),
    }
)


@dataclass(frozen=True, slots=True)
class Result:
    """One call of one operator. `error` is the largest difference, `allowed` what rounding explains."""

    operator: str
    kernel: str
    dtype: str
    case: str
    error: float
    allowed: float
    failure: str = ""

    def view(self) -> dict[str, Any]:
        """JSON-ready; an infinite error is none that JSON knows."""
        shown = asdict(self) | {"ok": self.ok}
        return shown if self.error < math.inf else shown | {"error": None}

    @property
    def ok(self) -> bool:
        return not self.failure and self.error <= self.allowed


@dataclass(frozen=True, slots=True)
class Subject:
    """One backend's operators in one dtype and weight format on one device. `sizes` are those that an interpreter can
    do, that a processor is quick with, or that a device is made for. Random values are drawn on the CPU."""

    backend: str
    kernels: Kernels
    dtype: torch.dtype
    weights: WeightFormat
    device: torch.device
    generator: torch.Generator
    sizes: Sizes

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Of a step: one sequence, a few, a chunk of a prompt."""
        return _ROW_COUNTS[self.sizes]

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """Of matrices: columns and rows, in whole groups and not in whole tiles."""
        return _WIDTHS[self.sizes]

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def there(self, values: Tensor) -> Tensor:
        """On the device, as the operators take them."""
        return values.to(self.dtype).to(self.device)

    def packed(self, matrix: Tensor) -> tuple[LinearWeight, Tensor]:
        """As the backend holds a matrix [rows, columns] of float32, and the values that it should hold, in float64."""
        source = matrix if self.weights != "plain" else matrix.to(self.dtype)
        weight = self.kernels.pack_linear(iter([source.to(self.device)]))
        return weight, self._held(source)

    def judge(  # noqa: PLR0913 (two values, what they are called, and how far they may be apart)
        self,
        operator: str,
        case: str,
        got: Tensor,
        exact: Tensor,
        *,
        steps: float = 1,
        size: float = 0,
        within: float = 0,
    ) -> Result:
        """`got` may be `steps` roundings to the dtype off the largest value, and so many of float32 off `size`, what
        sums were before they cancelled; `within` besides."""
        rounding = _ROUNDING.get(got.dtype, 0.0) * float(exact.abs().max())
        allowed = within + steps * (rounding + _WIDE_ROUNDING * max(1e-6, size, float(exact.abs().max())))
        found = got.detach().cpu().double()
        error = float((found - exact).abs().max()) if found.shape == exact.shape else math.inf
        error = math.inf if math.isnan(error) else error
        return Result(operator, self.kernels.names.get(operator, ""), _NAMES[self.dtype], case, error, allowed)

    def raised(self, operator: str, error: Exception) -> Result:
        failure = f"{type(error).__name__}: {error}"
        kernel = self.kernels.names.get(operator, "")
        return Result(operator, kernel, _NAMES[self.dtype], "", math.inf, 0.0, failure)

    def _held(self, matrix: Tensor) -> Tensor:
        if self.weights == "plain":
            return matrix.double()
        exact = select("reference", torch.float64, flash_attention=True, weights=self.weights)
        weight = exact.pack_linear(iter([matrix]))
        return exact.linear(torch.eye(weight.columns, dtype=torch.float64), weight).T
