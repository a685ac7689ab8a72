"""Shared by all tests: support code, and the real models."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Kernels run in Triton's interpreter; it asks once, when triton is imported. Children that compile drop it.
os.environ.setdefault("TRITON_INTERPRET", "1")

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))

MODELS = Path(os.environ.get("HALOGEN_TEST_MODELS", ROOT / ".cache/models"))


def _model(name: str) -> Path:
    path = MODELS / name
    if not path.is_file():
        pytest.fail(f"{path} is missing: run `make models`")
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return _model("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma() -> Path:
    return _model("gemma-3-270m-q4_k_m.gguf")


# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
