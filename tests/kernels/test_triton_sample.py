"""Sampling on a device chooses what the engine's sampler chooses on the host."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from halogen_kernels import sampling
from halogen_kernels.sampling import NO_TOKEN, Rule, rules
from halogen_kernels.triton import launching, tuning
from halogen_kernels.triton.sample import sample
from support.sampling_reference import make_sampling

from halogend.engine.philox import uniform
from halogend.engine.sampler import Sampler, SamplingState

# Weights on a device are float32, sums exact: a number as near as this to a border may fall on either side.
NEAR = 1e-5


def random_rule(seed: int) -> Rule:
    """Of all kinds; its number is the one that a request with this seed draws first."""
    return Rule(
        temperature=random.choice([0.3, 0.6, 1.0, 2.0]),
        top_k=random.choice([0, 0, 1, 5, 40, 1000]),
        top_p=random.choice([1.0, 1.0, 0.99, 0.85, 0.3]),
        min_p=random.choice([0.0, 0.0, 0.02, 0.5]),
        number=uniform(seed, 0),
    )


def on_the_host(row: torch.Tensor, rule: Rule, seed: int) -> int:
    said = {name: getattr(rule, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    return Sampler(len(row)).choose(row.numpy(), SamplingState(make_sampling(seed=seed, **said), ()))


def on_a_border(row: torch.Tensor, rule: Rule) -> bool:
    """Whether a change as small as NEAR of the shares that are asked for changes the token."""
    near = [
        Rule(rule.temperature, rule.top_k, rule.top_p + p * NEAR, rule.min_p * (1 + m * NEAR), rule.number + n * NEAR)
        for p in ((-1, 1) if rule.top_p < 1 else (0,))
        for m in (-1, 1)
        for n in (-1, 1)
    ]
    return len(set(sampling.sample(row.expand(len(near), -1), rules(near)).tolist())) > 1


def clear_cases(vocab: int, count: int) -> list[tuple[torch.Tensor, Rule, int]]:
    """Rows from peaked to flat, with rules and seeds that no rounding decides; others are drawn again."""
    cases: list[tuple[torch.Tensor, Rule, int]] = []
    while len(cases) < count:
        seed = random.getrandbits(32)
        row, rule = torch.randn(vocab) * random.choice([0.05, 1.0, 4.0, 12.0]), random_rule(seed)
        if not on_a_border(row, rule):
            cases.append((row, rule, seed))
    return cases


def on_the_device(rows: Sequence[torch.Tensor], how: Sequence[Rule], device: torch.device) -> list[int]:
    return sample(torch.stack(list(rows)).to(device), rules(how).to(device)).tolist()


@pytest.mark.parametrize(("vocab", "count"), [(1, 1), (2, 4), (300, 6), (3008, 6)])
def test_what_the_host_chooses(vocab: int, count: int, device: torch.device) -> None:
    cases = clear_cases(vocab, count)
    with launching.launched() as variants:
        chosen = on_the_device([row for row, _, _ in cases], [rule for _, rule, _ in cases], device)
    assert chosen == [on_the_host(*case) for case in cases]
    assert [variant.kernel for variant in variants] == ["survey_kernel", "choose_kernel"]
    assert variants[0].constexprs["ALIGNED"] == (vocab % 16 == 0)


@pytest.mark.parametrize("spread", [0.05, 4.0])
def test_rows_of_many_blocks(spread: float, device: torch.device) -> None:
    """A flat row, of which all tokens can matter, and a peaked one, over blocks of 128."""
    how = [Rule(1.0, top_k, top_p, 0.0, 0.7) for top_k, top_p in ((0, 1.0), (700, 0.95))]
    row = torch.randn(1000) * spread
    while any(on_a_border(row, rule) for rule in how):
        row = torch.randn(1000) * spread
    blocks = {**tuning.pick("sample", step="survey", vocab=1000), "BLOCK": 128}
    with tuning.trying("sample", 0, blocks), launching.launched() as variants:
        chosen = on_the_device([row] * len(how), how, device)
    assert chosen == sampling.sample(row.expand(len(how), -1), rules(how)).tolist()
    assert {variant.constexprs["BLOCK"] for variant in variants} == {128}


def test_a_vocabulary_as_large_as_any(device: torch.device) -> None:
    row, rule = torch.randn(200_001) * 3, Rule(0.6, 0, 0.85, 0.0, 0.6)
    while on_a_border(row, rule):
        row = torch.randn(200_001) * 3
    assert on_the_device([row], [rule], device) == sampling.sample(row.unsqueeze(0), rules([rule])).tolist()


def test_the_definition_is_what_the_host_chooses() -> None:
    cases = clear_cases(200, 200)
    defined = sampling.sample(torch.stack([row for row, _, _ in cases]), rules([rule for _, rule, _ in cases]))
    assert defined.tolist() == [on_the_host(*case) for case in cases]


def test_equal_logits_are_taken_by_rising_id_on_exact_borders(device: torch.device) -> None:
    """Twenty equal ones under a top-p of 0.85 are seventeen; the last number falls on the seventeenth."""
    row = torch.full((25,), -100.0)
    row[2:22] = 1.5
    for top_k, kept in ((0, 17), (10, 9)):  # 0.85 of ten is 8.5
        numbers = [(kept - 1.001) / kept, (kept - 0.999) / kept, 1 - 2.0**-53]
        how = [Rule(0.7, top_k, 0.85, 0.0, number) for number in numbers]
        expected = [kept, 1 + kept, 1 + kept]
        assert on_the_device([row] * len(how), how, device) == expected
        assert sampling.sample(row.expand(len(how), -1), rules(how)).tolist() == expected


def test_both_zeros_are_equal(device: torch.device) -> None:
    row = torch.tensor([-1.0, -0.0, 0.0, -0.0, -2.0])
    how = [Rule(1e-3, 0, 1.0, 0.0, number) for number in (0.1, 0.5, 0.9)]
    assert on_the_device([row] * 3, how, device) == [1, 2, 3]
    assert on_the_device([row], [Rule(0.0, 0, 1.0, 0.0, 0.9)], device) == [1]


def test_the_largest_without_a_temperature_whatever_else_is_said(device: torch.device) -> None:
    row = torch.randn(70)
    row[[31, 40]] = 9.0
    how = [Rule(temperature, 3, 0.5, 0.9, 0.99) for temperature in (0.0, 9e-6)]
    assert on_the_device([row, row], how, device) == [31, 31]


def test_a_row_that_is_not_finite_has_no_token_and_its_neighbours_have_theirs(device: torch.device) -> None:
    rows = [torch.randn(50) for _ in range(5)]
    for row, bad in zip(rows[1:4], (float("nan"), float("inf"), float("-inf")), strict=True):
        row[random.randrange(50)] = bad
    how = [Rule(0.6, 0, 0.9, 0.0, 0.5)] * 5
    chosen = on_the_device(rows, how, device)
    assert chosen[1:4] == [NO_TOKEN] * 3
    assert [chosen[0], chosen[4]] == sampling.sample(torch.stack([rows[0], rows[4]]), rules(how[:2])).tolist()


def test_into_memory_that_is_given_from_rows_that_lie_apart(device: torch.device) -> None:
    wide = torch.randn(3, 112, device=device)
    how, out = rules([Rule(0.0, 0, 1.0, 0.0, 0.0)] * 3).to(device), torch.full((3,), -9, device=device)
    assert sample(wide[:, :70], how, out) is out
    assert torch.equal(out, wide[:, :70].argmax(-1))


def test_a_vocabulary_whose_weights_could_overflow_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match="is more than the 1048576"):
        sample(torch.zeros(1, (1 << 20) + 1, device=device), rules([Rule(1.0, 0, 1.0, 0.0, 0.5)]).to(device))
