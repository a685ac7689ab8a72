from __future__ import annotations

import pytest

from halogend.engine.philox import philox4x32, uniform

ALL_ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ALL_ONES,) * 4, (ALL_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_random123(counter, key, expected) -> None:
    """The known-answer vectors that the authors publish with their library."""
    assert philox4x32(counter, key) == expected


def test_uniform_is_even_and_depends_on_seed_and_position() -> None:
    draws = [uniform(1234, position) for position in range(20_000)]
    counts = [0] * 20
    for draw in draws:
        counts[int(draw * 20)] += 1
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts)
    assert chi_square < 43.8  # 19 degrees of freedom, p = 0.001
    assert len(set(draws)) == len(draws)
    assert draws[:5] == [uniform(1234, position) for position in range(5)]
    assert draws[:5] != [uniform(1235, position) for position in range(5)]


@pytest.mark.parametrize("seed", [-1, 0, 2**63 - 1, 2**64 + 5])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert 0 <= uniform(seed, 2**40) < 1
    assert uniform(seed, 7) == uniform(seed % 2**64, 7)


def test_the_first_words_give_the_53_bits() -> None:
    high, low = 0x6627E8D5 >> 5, 0xE169C58D >> 6
    assert uniform(0, 0) == (high * 2**26 + low) / 2**53
