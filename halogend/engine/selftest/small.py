"""Norms, rotary positions, rows of a table and the choice of tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import torch
from halogen_kernels import sampling
from halogen_kernels.sampling import Rule
from torch import Tensor

from halogend.engine.selftest.subject import EXACT, Result, Subject

_EPS = 1e-6
_NEAR = 1e-5
_RULES = MappingProxyType(
    {
        "greedy": Rule(0.0, 0, 1.0, 0.0, 0.0),
        "all": Rule(1.0, 0, 1.0, 0.0, 0.0),
        "top_k": Rule(0.8, 40, 1.0, 0.0, 0.0),
        "top_p and min_p": Rule(1.5, 0, 0.9, 0.02, 0.0),
    }
)


def rms_norm(subject: Subject) -> Iterator[Result]:
    """Alone, and added to a residual."""
    for width in (subject.widths[0][0], subject.widths[1][0] + 8):
        weight = subject.random(width)
        norm = subject.kernels.pack_norm(weight.to(subject.device), _EPS)
        exact_norm = EXACT.pack_norm(weight.double(), _EPS)
        for count in subject.row_counts:
            x = subject.there(subject.random(count, width))
            exact = EXACT.rms_norm(x.cpu().double(), exact_norm, torch.float64)
            got = subject.kernels.rms_norm(x, norm, subject.dtype)
            yield subject.judge("rms_norm", f"{count} x {width}", got, exact, steps=2)
            residual = subject.random(count, width)
            summed = residual.double() + exact
            there = residual.to(subject.device)
            subject.kernels.add_rms_norm(there, x, norm)
            size = float(exact.abs().max() + summed.abs().max())
            yield subject.judge("rms_norm", f"added, {count} x {width}", there, summed, steps=2, size=size)


def norm_of_sum(subject: Subject) -> Iterator[Result]:
    """What a layer leaves in the residual and what the next one reads of it, with a norm between and without; of
    backends that have it in one."""
    if subject.kernels.norm_of_sum is None:
        return
    for width in (subject.widths[0][0], subject.widths[1][0] + 8):
        weights = [subject.random(width) for _ in range(2)]
        norm, inner = (subject.kernels.pack_norm(each.to(subject.device), _EPS) for each in weights)
        exact_norm, exact_inner = (EXACT.pack_norm(each.double(), _EPS) for each in weights)
        for count in subject.row_counts:
            delta, residual = subject.there(subject.random(count, width)), subject.random(count, width)
            for is_double in (False, True):
                added = delta.cpu().double()
                added = EXACT.rms_norm(added, exact_inner, torch.float64) if is_double else added
                summed = residual.double() + added
                there = residual.to(subject.device)
                got = subject.kernels.norm_of_sum(there, delta, norm, subject.dtype, inner if is_double else None)
                case = f"of a sum, {count} x {width}" + (", normed before" if is_double else "")
                size = float(added.abs().max() + summed.abs().max())
                yield subject.judge("rms_norm", f"{case}, the sum", there, summed, steps=2, size=size)
                exact = EXACT.rms_norm(summed, exact_norm, torch.float64)
                yield subject.judge("rms_norm", case, got, exact, steps=2, size=float(exact.abs().max()) * 16)


def embedding(subject: Subject) -> Iterator[Result]:
    """Numbers, and codes with a scale a row; of backends that gather rows themselves."""
    if subject.kernels.embedding is None:
        return
    width, vocab = subject.widths[1][0] + 8, 37
    tokens = torch.randint(vocab, (subject.row_counts[-1],), generator=subject.generator)
    table = subject.there(subject.random(vocab, width))
    got = subject.kernels.embedding(table, None, tokens.to(subject.device))
    yield subject.judge("embedding", f"{len(tokens)} of {width}", got, table.cpu().double()[tokens], steps=0)
    codes = torch.randint(-127, 128, (vocab, width), generator=subject.generator).to(torch.int8)
    scales = torch.rand(vocab, generator=subject.generator)
    exact = (codes.double() * scales.double().unsqueeze(1))[tokens]
    got = subject.kernels.embedding(codes.to(subject.device), scales.to(subject.device), tokens.to(subject.device))
    yield subject.judge("embedding", f"{len(tokens)} of {width}, int8", got, exact)


def sample(subject: Subject) -> Iterator[Result]:
    """Tokens, in rows from flat to peaked, by rules of all kinds that no rounding decides; of backends that choose
    them. The error is how far the worst id is off."""
    if subject.kernels.sample is None:
        return
    vocab, each = (32_000, 8) if subject.sizes == "large" else (200, 1)
    for name, rule in _RULES.items():
        rows = torch.cat([subject.random(each, vocab) * peak for peak in (0.05, 1.0, 4.0, 12.0)])
        rows, rules = _clear(subject, rows, rule)
        got = subject.kernels.sample(rows.to(subject.device), rules.to(subject.device))
        yield subject.judge("sample", f"{len(rows)} of {vocab}, {name}", got, sampling.sample(rows, rules), steps=0)


def _clear(subject: Subject, rows: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Rows, and that rule with a number of each row's own. What is as near as _NEAR to a border is left out: weights
    on a device are float32."""
    numbers = torch.rand(len(rows), generator=subject.generator).tolist()
    ways = [
        sampling.rules(_shifted(rule, number, p * _NEAR, m * _NEAR, n * _NEAR) for number in numbers)
        for p, m, n in itertools.product((-1, 1), repeat=3)
    ]
    found = torch.stack([sampling.sample(rows, way) for way in ways])
    clear = (found == found[0]).all(0)
    return rows[clear], sampling.rules(replace(rule, number=number) for number in numbers)[clear]


def _shifted(rule: Rule, number: float, top_p: float, min_p: float, by: float) -> Rule:
    shifted = rule.top_p + top_p if rule.top_p < 1 else 1.0
    return replace(rule, top_p=shifted, min_p=rule.min_p * (1 + min_p), number=min(max(number + by, 0.0), 1 - 1e-9))


def rotate(subject: Subject) -> Iterator[Result]:
    """In place, with the heads normalised first and without."""
    heads, head_dim = 4, 128 if subject.sizes == "large" else 64
    weight = subject.random(heads, head_dim)
    norm = subject.kernels.pack_norm(weight.to(subject.device), _EPS)
    for count in subject.row_counts:
        angles = torch.rand(count, 1, head_dim // 2, generator=subject.generator, dtype=torch.float64) * 100
        turns = torch.polar(torch.ones_like(angles), angles)
        for is_normed in (False, True):
            x = subject.there(subject.random(count, heads, head_dim))
            exact = x.cpu().double()
            EXACT.rotate(exact, turns, EXACT.pack_norm(weight.double(), _EPS) if is_normed else None)
            subject.kernels.rotate(x, turns.to(torch.complex64).to(subject.device), norm if is_normed else None)
            case = f"{count} x {heads} x {head_dim}" + (", normed" if is_normed else "")
            yield subject.judge("rotate", case, x, exact, steps=2, size=float(exact.abs().max()) * 16)
