"""Products with weights: linear maps, logits, gated feed-forwards, mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from halogen_kernels import Activation, ExpertWeights, LinearWeight, reference
from torch import Tensor

from halogend.engine.selftest.subject import Result, Subject

_ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu_tanh")
_PACKED_STEPS = 2  # activations may be rounded once more on the way to a quantised product


def linear(subject: Subject) -> Iterator[Result]:
    """With and without a bias."""
    for columns, rows in subject.widths:
        weight, values = subject.packed(subject.random(rows, columns))
        bias = subject.random(rows)
        for count in subject.row_counts:
            x = subject.there(subject.random(count, columns))
            exact, size = product(x, values)
            case = f"{count} x {columns} -> {rows}"
            got = subject.kernels.linear(x, weight)
            yield subject.judge("linear", case, got, exact, steps=steps(subject), size=size)
            got = subject.kernels.linear(x, weight, bias.to(subject.device))
            exact = exact + bias.double()
            yield subject.judge("linear", f"{case} with a bias", got, exact, steps=steps(subject) + 1, size=size)


def logits(subject: Subject) -> Iterator[Result]:
    """Into a wider result."""
    columns, rows = subject.widths[0]
    weight, values = subject.packed(subject.random(rows, columns))
    x = subject.there(subject.random(3, columns))
    exact, size = product(x, values)
    out = torch.full((3, rows), float("nan"), device=subject.device)
    subject.kernels.logits(x, weight, out)
    got = out.to(subject.dtype)  # a backend may compute them in its dtype
    yield subject.judge("linear", f"logits 3 x {columns} -> {rows}", got, exact, steps=steps(subject) + 1, size=size)


def gated_linear(subject: Subject) -> Iterator[Result]:
    columns, rows = subject.widths[0]
    gate, gate_values = subject.packed(subject.random(rows, columns) / columns**0.5)
    up, up_values = subject.packed(subject.random(rows, columns) / columns**0.5)
    for kind in _ACTIVATIONS:
        for count in subject.row_counts:
            x = subject.there(subject.random(count, columns))
            (opened, gate_size), (raised, up_size) = product(x, gate_values), product(x, up_values)
            exact = reference.activate(opened, kind) * raised
            got = subject.kernels.gated_linear(x, gate, up, kind)
            case = f"{kind} {count} x {columns} -> {rows}"
            yield subject.judge("gated_linear", case, got, exact, steps=4, size=gate_size * up_size)


def mixture(subject: Subject) -> Iterator[Result]:
    """Rows that choose unevenly."""
    yield from mixtures(subject, subject.packed)


def mixtures(
    subject: Subject, hold: Callable[[Tensor], tuple[LinearWeight, Tensor]], word: str = ""
) -> Iterator[Result]:
    """Of experts that are held as `hold` does it, which also tells their values; `word` says how in words."""
    columns, count, each = subject.widths[0][0], 8, 2
    inner = columns // 2
    packed = [
        [hold(subject.random(*shape) / shape[1] ** 0.5) for _ in range(count)]
        for shape in ((inner, columns), (inner, columns), (columns, inner))
    ]
    gate, up, down = (tuple(weight for weight, _ in group) for group in packed)
    experts = ExpertWeights(gate=gate, up=up, down=down)
    values = [[held for _, held in group] for group in packed]
    for rows in subject.row_counts:
        x = subject.there(subject.random(rows, columns))
        shares, chosen = torch.rand(rows, count, generator=subject.generator).topk(each)
        exact = _mixed(x, chosen, shares, values)
        places = chosen.to(subject.device), shares.to(subject.device)
        got = subject.kernels.mixture(x, *places, experts, "silu")
        size = float(exact.abs().max()) * columns
        yield subject.judge("mixture", f"{word}{rows} rows, {each} of {count}", got, exact, steps=6, size=size)


def _mixed(x: Tensor, chosen: Tensor, shares: Tensor, values: list[list[Tensor]]) -> Tensor:
    wide = x.cpu().double()
    out = torch.zeros_like(wide)
    for row in range(len(wide)):
        for number, share in zip(chosen[row].tolist(), shares[row].double(), strict=True):
            gate, up, down = (group[number] for group in values)
            inner = reference.activate(wide[row] @ gate.T, "silu") * (wide[row] @ up.T)
            out[row] += share * (inner @ down.T)
    return out


def product(x: Tensor, values: Tensor) -> tuple[Tensor, float]:
    """Exact, and the largest size that a sum had before it cancelled."""
    wide = x.cpu().double()
    return wide @ values.T, float((wide.abs() @ values.abs().T).max())


def steps(subject: Subject) -> int:
    """Roundings of a product on its way."""
    return 1 if subject.weights == "plain" else _PACKED_STEPS
