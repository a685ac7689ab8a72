"""A counter-based random generator: the number at a position is computed, never carried along.

Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC 2011 (section 4 and table 2). Keyed by a request's seed and counted by the
token's position, so that a request that is preempted, moved or batched differently draws the same.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
_ROUNDS = 10

Counter = tuple[int, int, int, int]


def philox4x32(counter: Counter, key: tuple[int, int]) -> Counter:
    """Ten rounds over four 32-bit words, with a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits. Only the low 64 bits of `seed` count."""
    high, low, _, _ = philox4x32(
        (position & _MASK, position >> 32 & _MASK, 0, 0),
        (seed & _MASK, seed >> 32 & _MASK),
    )
    return ((high >> 5) * (1 << 26) + (low >> 6)) / (1 << 53)
