"""`python -m halogend.engine.selftest --backend cpu --device cpu:0 --seed N`, or `--links`: a line of JSON for
each result. Kernels of devices are taken from `--kernel-cache`, and what it lacks is compiled into it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from halogen_kernels import WEIGHT_FORMATS, select

from halogend.engine.selftest import attention, links, products, small
from halogend.engine.selftest.adopted import adopted
from halogend.engine.selftest.subject import Result, Sizes, Subject

Check = Callable[[Subject], Iterator[Result]]

_WEIGHED: tuple[tuple[str, Check], ...] = (
    ("linear", products.linear),
    ("linear", products.logits),
    ("gated_linear", products.gated_linear),
    ("mixture", products.mixture),
    ("linear", adopted),
)
_OTHERS: tuple[tuple[str, Check], ...] = (
    ("rms_norm", small.rms_norm),
    ("rms_norm", small.norm_of_sum),
    ("embedding", small.embedding),
    ("sample", small.sample),
    ("rotate", small.rotate),
    ("write_kv", attention.write_kv),
    ("attention_decode", attention.attend),
)


def main() -> int:
    """0 when every operator was tried, whatever came of it."""
    parser = argparse.ArgumentParser(prog="python -m halogend.engine.selftest", description=__doc__)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--links", action="store_true")
    parser.add_argument("--kernel-cache", type=Path, help="folder of compiled kernels")
    arguments = parser.parse_args()
    if arguments.links:
        for each in links.measured():
            _say({"link": each})
        return 0
    device = device_of(arguments.device)
    if arguments.kernel_cache is not None:
        use_kernels(arguments.kernel_cache, device)
    for result in results(arguments.backend, device, sizes_of(arguments.backend, device), arguments.seed):
        _say({"result": result.view()})
    return 0


def device_of(text: str) -> torch.device:
    """torch calls AMD's devices cuda as well."""
    kind, _, number = text.partition(":")
    return torch.device("cpu") if kind == "cpu" else torch.device("cuda", int(number or 0))


def use_kernels(folder: Path, device: torch.device) -> None:
    """Those that engines on the device launch; what is launched on a processor is not compiled."""
    if device.type != "cpu":
        from halogen_kernels.triton import cache  # noqa: PLC0415 (Triton, which only a device needs)

        cache.use_what_is_there(folder)


def sizes_of(backend: str, device: torch.device) -> Sizes:
    """What takes seconds there, and not minutes."""
    if device.type != "cpu":
        return "large"
    return "medium" if backend == "cpu" else "small"


def results(backend: str, device: torch.device, sizes: Sizes, seed: int) -> Iterator[Result]:
    """Of every operator in every dtype and weight format that the backend computes in."""
    generator = torch.Generator().manual_seed(seed)
    for dtype in (torch.bfloat16, torch.float16) if backend == "triton" else (torch.float32, torch.bfloat16):
        for weights in WEIGHT_FORMATS:
            kernels = select(backend, dtype, flash_attention=True, weights=weights, device=device)
            subject = Subject(backend, kernels, dtype, weights, device, generator, sizes)
            for operator, check in (*_WEIGHED, *(_OTHERS if weights == "plain" else ())):
                yield from _tried(subject, operator, check)


def _tried(subject: Subject, operator: str, check: Check) -> Iterator[Result]:
    try:
        yield from check(subject)
    except Exception as error:  # noqa: BLE001 (an operator that raises is a result, and the others are tried)
        yield subject.raised(operator, error)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
