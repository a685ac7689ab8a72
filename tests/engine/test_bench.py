"""The benchmark's arithmetic, our side of it on a tiny model, and its command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.tiny_models import tiny_llama

from halogend.cli.main import main as halogend
from halogend.engine.bench import __main__ as command
from halogend.engine.bench import measure
from halogend.engine.bench.measure import BATCHES, DECODE_TOKENS, PREFILL_TOKENS, Timing
from halogend.engine.bench.ours import engine


def test_speeds_from_timings() -> None:
    """Ten tokens a millisecond of prompt; a step of any size takes ten milliseconds."""
    asked: list[tuple[int, int, int]] = []

    def generate(prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Timing]:
        asked.append((len(prompts), len(prompts[0]), max_tokens))
        first = len(prompts[0]) / 10_000
        return [Timing(5.0, 5.0 + first, 5.0 + first + (max_tokens - 1) * 0.01) for _ in prompts]

    figures = measure.measure(generate)
    assert figures == pytest.approx({"prefill": 10_000, **{f"decode {batch}": batch * 100 for batch in BATCHES}})
    assert asked[1] == (1, PREFILL_TOKENS, 1)
    assert asked[2:] == [(batch, measure.PROMPT_TOKENS, DECODE_TOKENS) for batch in BATCHES]


def test_prompts_share_no_beginning() -> None:
    firsts = {measure.prompt(100 * batch + number, 16)[0] for batch in BATCHES for number in range(batch)}
    assert len(firsts) == sum(BATCHES)


def test_our_side_times_every_request(tmp_path: Path) -> None:
    generate = engine(str(tiny_llama(tmp_path / "model.gguf").path), 1, "bf16")
    timings = generate([[5, 6, 7], [8] * 40, [9]], 5)
    assert len(timings) == 3
    assert all(timing.handed_s < timing.first_s < timing.last_s for timing in timings)
    [alone] = generate([[3] * 30], 1)
    assert alone.first_s == alone.last_s


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Sides take turns, the median is shown, and a side that cannot run leaves the other's row."""
    model = tmp_path / "model.gguf"
    model.touch()
    order: list[str] = []

    def measured(_model: str, side: str, _args: object) -> dict[str, float] | None:
        order.append(side)
        run = len(order) // 2
        names = ["prefill", *(f"decode {batch}" for batch in BATCHES)]
        return dict.fromkeys(names, (200.0 if side == "halogend" else 100.0) + run)

    monkeypatch.setattr(command, "_measure_side", measured)
    assert command.main([str(model), "--runs", "3"]) == 0
    assert order == ["halogend", "llama.cpp"] * 3
    title, heads, ours, theirs, ratio = capsys.readouterr().out.splitlines()
    assert title.startswith("model.gguf: tokens/s, median of 3 alternating runs")
    assert heads.split() == ["prefill", "512", *(word for batch in BATCHES for word in ("decode", str(batch)))]
    assert ours.split() == ["halogend", *["201.0"] * 5]
    assert theirs.split() == ["llama.cpp", *["102.0"] * 5]
    assert ratio.split() == ["ratio", *["1.97"] * 5]
    monkeypatch.setattr(
        command, "_measure_side", lambda _m, side, _a: measured("", side, 0) if side[0] == "h" else None
    )
    assert command.main([str(model), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["models"][str(model)]
    assert (len(runs["halogend"]), runs["llama.cpp"]) == (3, [])


def test_a_missing_model_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert halogend(["bench", "engine", str(tmp_path / "none.gguf"), "--runs", "1"]) == 1
    assert "none.gguf: no such file" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_both_sides_on_a_real_model(smollm2: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert halogend(["bench", "engine", str(smollm2), "--runs", "1", "--json"]) == 0
    [runs] = json.loads(capfd.readouterr().out)["models"].values()
    for side in ("halogend", "llama.cpp"):
        assert len(runs[side]) == 1
        assert all(figure > 0 for figure in runs[side][0].values())
