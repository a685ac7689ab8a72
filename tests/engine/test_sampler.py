from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling_reference import choose, distribution, make_sampling

from halogend.engine.sampler import NumericError, Sampler, SamplingState


def make_row(vocab: int, seed: int, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(vocab) * scale).astype(np.float32)


def run(rows: list[np.ndarray], prompt: tuple[int, ...], **changes: float) -> list[int]:
    state = SamplingState(make_sampling(**changes), prompt)
    sampler = Sampler(len(rows[0]))
    return [sampler.choose(row, state) for row in rows]


def run_reference(rows: list[np.ndarray], prompt: tuple[int, ...], **changes: float) -> list[int]:
    output: list[int] = []
    for row in rows:
        output.append(choose([float(x) for x in row], make_sampling(**changes), prompt, output))
    return output


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0},
        {},
        {"temperature": 0.6, "top_p": 0.85},
        {"temperature": 2.5},
        {"temperature": 0.01},
        {"top_k": 1},
        {"top_k": 7},
        {"top_k": 5000},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8},
        {"min_p": 0.1},
        {"min_p": 1},
        {"min_p": 1e-9},
        {"top_p": 0.0},
        {"top_p": 0.9999999},
        {"top_p": 0.999, "min_p": 0.02},
        {"top_p": 0.3, "min_p": 0.0001},
        {"temperature": 0, "repetition_penalty": 1.3},
        {"repetition_penalty": 0.7, "temperature": 0.9},
        {"presence_penalty": 1.5, "frequency_penalty": 0.4},
        {"presence_penalty": -2.0, "frequency_penalty": -1.0, "temperature": 0},
        {"repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2, "top_p": 0.9, "top_k": 30},
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [0.01, 3.0, 15.0], ids=["flat", "usual", "sharp"])
def test_equals_the_reference(changes: dict[str, float], scale: float) -> None:
    rows = [make_row(300, seed, scale) for seed in range(40)]
    prompt = (3, 5, 3, 250)
    assert run(rows, prompt, seed=99, **changes) == run_reference(rows, prompt, seed=99, **changes)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-8, 8), min_size=2, max_size=12),
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0, 0.3, 1, 3]),
            "top_k": st.integers(0, 14),
            "top_p": st.sampled_from([0, 0.2, 0.5, 0.95, 1]),
            "min_p": st.sampled_from([0, 0.1, 0.5, 1]),
            "repetition_penalty": st.sampled_from([0.5, 1, 2]),
            "presence_penalty": st.sampled_from([-1, 0, 0.5]),
            "frequency_penalty": st.sampled_from([-0.5, 0, 1]),
            "seed": st.integers(0, 2**64 - 1),
        }
    ),
)
def test_equals_the_reference_where_logits_tie(logits: list[int], changes: dict[str, float]) -> None:
    """Whole numbers: ties everywhere, at the k-th place too."""
    rows = [np.array(logits, np.float32)] * 4
    assert run(rows, (0, 1), **changes) == run_reference(rows, (0, 1), **changes)


def test_ties_go_to_the_lower_id() -> None:
    row = np.array([1, 5, 5, 5, 2], np.float32)
    assert run([row], (0,), temperature=0) == [1]
    picks = {run([row], (0,), top_k=2, seed=seed)[0] for seed in range(50)}
    assert picks == {1, 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1.0},
        {"temperature": 0.6, "top_p": 0.85},
        {"top_k": 6},
        {"min_p": 0.1},
        {"temperature": 1.4, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
def test_frequencies_are_those_of_the_distribution(changes: dict[str, float]) -> None:
    """Chi-square at p = 0.0001 with fixed seeds: it either always passes or never does."""
    row = make_row(30, 5, 1.2)
    draws = 20_000
    sampler = Sampler(30)
    counts = [0] * 30
    for seed in range(draws):
        counts[sampler.choose(row, SamplingState(make_sampling(**changes, seed=seed), (0,)))] += 1
    expected = dict(distribution([float(x) for x in row], make_sampling(**changes)))
    assert all(token in expected for token, count in enumerate(counts) if count)
    chi_square = sum((counts[token] - draws * p) ** 2 / (draws * p) for token, p in expected.items())
    freedom = len(expected) - 1
    # Wilson and Hilferty's approximation of the chi-square quantile, z(0.9999) = 3.719
    bound = freedom * (1 - 2 / (9 * freedom) + 3.719 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert chi_square < bound


def test_same_seed_same_tokens_wherever_it_stopped() -> None:
    rows = [make_row(200, seed) for seed in range(12)]
    whole = run(rows, (1, 2, 3), seed=5, temperature=0.9)
    resumed = run(rows[6:], (1, 2, 3, *whole[:6]), seed=5, temperature=0.9)
    assert whole == [*whole[:6], *resumed]
    assert whole != run(rows, (1, 2, 3), seed=6, temperature=0.9)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_row_that_is_not_finite_fails(bad: float, temperature: float) -> None:
    row = make_row(100, 1)
    row[37] = bad
    with pytest.raises(NumericError):
        run([row], (0,), temperature=temperature)


def test_penalties_that_overflow_fail_too() -> None:
    with pytest.raises(NumericError):
        run([make_row(100, 1, 1e30)], (0, 1, 2, 3, 4), repetition_penalty=1e-20)


@pytest.mark.parametrize("temperature", [1e-30, 1e30])
def test_extreme_temperatures(temperature: float) -> None:
    row = make_row(100, 1)
    (token,) = run([row], (0,), temperature=temperature)
    if temperature < 1:
        assert token == row.argmax()


def test_logits_stay_as_they_are() -> None:
    row = make_row(100, 1)
    before = row.copy()
    run([row], (0, 1), repetition_penalty=1.5, presence_penalty=1.0, top_p=0.5)
    assert (row == before).all()


def test_a_large_vocabulary_equals_the_reference() -> None:
    rows = [make_row(50_000, seed) for seed in range(2)]
    for changes in (
        {"temperature": 0.6, "top_p": 0.85},
        {"top_k": 50},
        {"top_k": 9000, "temperature": 3.0},
        {"temperature": 1.5},
        {"temperature": 2.0, "top_p": 0.95},
        {"min_p": 0.05},
        {"temperature": 3.0, "min_p": 0.01},
        {"temperature": 3.0, "min_p": 0.01, "top_p": 0.8},
    ):
        assert run(rows, (1,), seed=3, **changes) == run_reference(rows, (1,), seed=3, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("vocab", [49_152, 262_144])
def test_speed(vocab: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Milliseconds for 16 rows; run with `-m slow -s` to see them. A measurement, not a bar."""
    rows = [make_row(vocab, seed) for seed in range(16)]
    sampler = Sampler(vocab)
    prompt = tuple(range(1000))
    for changes in (
        {"temperature": 0},
        {"temperature": 0.6, "top_p": 0.85},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
        {"temperature": 0.6, "top_p": 0.85, "repetition_penalty": 1.1},
        {"temperature": 1.0},
        {"temperature": 2.0, "top_p": 0.95},
        {"temperature": 5.0},
    ):
        states = [SamplingState(make_sampling(**changes, seed=seed), prompt) for seed in range(16)]
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            for row, state in zip(rows, states, strict=True):
                sampler.choose(row, state)
            best = min(best, time.perf_counter() - started)
        assert all(state.position == len(prompt) + 5 for state in states)
        with capsys.disabled():
            print(f"\n16 x {vocab}: {best * 1e3:7.2f} ms  {changes}", end="")
