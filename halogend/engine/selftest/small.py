"""Norms and rotary positions."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from halogend.engine.selftest.subject import EXACT, Result, Subject

_EPS = 1e-6


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
