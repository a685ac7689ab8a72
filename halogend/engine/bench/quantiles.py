"""Order statistics of what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all are not above (nearest rank). Raises ValueError of none."""
    if not values:
        raise ValueError("there is no quantile of nothing")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
