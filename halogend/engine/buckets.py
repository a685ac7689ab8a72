"""Where in the order of falling logits a given share of the weight is reached, without sorting."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

_BUCKETS = 4096


class Buckets:
    """A vocabulary cut into buckets by falling logit; only the bucket that matters is sorted.

        logits   largest ............................ smallest
        bucket   0      | 1 | 2 | ...               | last       equal widths
        weight   sum of each bucket, then running sums

    `row` is float32 [vocab]; `weights` float64 [vocab], never growing as the logit falls. Equal
    logits are in the order of their ids.
    """

    def __init__(self, row: npt.NDArray[np.float32], weights: npt.NDArray[np.float64]) -> None:
        self._row = row
        self._weights = weights
        largest, width = row.max(), row.max() - row.min()
        scale = np.float32((_BUCKETS - 1) / max(float(width), 1e-30))
        # Rounding cannot put a smaller logit into an earlier bucket: each operation is monotonic.
        self._levels = ((largest - row) * scale).astype(np.int32)
        self._sums = np.bincount(self._levels, weights, _BUCKETS).cumsum()

    def reach(self, share: float, *, beyond: bool) -> tuple[int, float]:
        """The first id whose running sum of weights is at least `share` (more than, if `beyond`),
        and that sum. The last id if rounding keeps the sum below."""
        side: Literal["left", "right"] = "right" if beyond else "left"
        bucket = min(int(np.searchsorted(self._sums, share, side)), int(self._levels.max()))
        ids = np.flatnonzero(self._levels == bucket)
        ids = ids[np.argsort(-self._row[ids], kind="stable")]
        sums = self._weights[ids].cumsum()
        if bucket > 0:
            sums += self._sums[bucket - 1]
        index = min(int(np.searchsorted(sums, share, side)), len(ids) - 1)
        return int(ids[index]), float(sums[index])
