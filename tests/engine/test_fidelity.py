"""Both real models against llama.cpp computing in float32 on the same weights."""

from __future__ import annotations

import pytest
from support.fidelity import NEAR_TIE, ROOT, compare, report

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_close_to_the_exact_logits(name: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture) -> None:
    model = request.getfixturevalue(name)
    scores = compare(model, ROOT / ".cache/f32")
    with capsys.disabled():
        print(f"\n{report(model, scores)}")
    fp32, bf16, peer = scores.values()
    assert fp32.count == 2000
    assert fp32.clear_misses == 0, f"other first choices where the reference's gap is at least {NEAR_TIE}"
    assert fp32.mean_divergence < 1e-6  # llama.cpp looks its gelu up in a float16 table
    assert bf16.agreement >= peer.agreement
    assert bf16.mean_divergence <= peer.mean_divergence
