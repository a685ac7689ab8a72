"""One intra-operator thread: teams of threads wait for each other badly on a machine that tests share.
Memory that is not initialised holds NaN, or the largest integer, so that a result left out shows.

HALOGEN_TEST_DEVICE=cuda (with TRITON_INTERPRET=0) runs the tests of Triton's kernels, unchanged, on a device;
otherwise they run in the interpreter, on the CPU's tensors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

DEVICE = os.environ.get("HALOGEN_TEST_DEVICE", "cpu")


def pytest_configure(config: pytest.Config) -> None:
    """Filling memory comes with a wish for determinism, which some of torch's operators on a device cannot meet."""
    if DEVICE != "cpu":
        config.addinivalue_line("filterwarnings", "ignore:.*deterministic.*:UserWarning")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the tensors of a test of Triton's kernels belong."""
    interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    if interpreted != (DEVICE == "cpu"):
        pytest.fail(f"tensors would be on {DEVICE}, and TRITON_INTERPRET is {os.environ.get('TRITON_INTERPRET')!r}")
    return torch.device(DEVICE)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _poisoned_memory() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=DEVICE != "cpu")
    yield
    torch.use_deterministic_algorithms(before)
