"""How close our engine and llama.cpp come to the exact logits, teacher-forced over code and English.

The reference is llama.cpp in float32 (flash attention off, float32 KV) on the file's weights written
as F32. As a program it prints the table for each model given:

    python tests/support/fidelity.py MODEL.gguf ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
TEXTS = ROOT / "tests/cases/fidelity"
TOKENS = 2000
NEAR_TIE = 1e-3
CHUNK = 64
POOL_BYTES = 256 << 20


@dataclass
class Score:
    """Of one engine against the reference over `count` tokens: how often the first choice is the same;
    how many differ where the reference's two first choices are at least NEAR_TIE apart; mean
    Kullback-Leibler divergence in nats; root mean square of the difference of log-probabilities."""

    name: str
    count: int = 0
    same: int = 0
    clear_misses: int = 0
    divergence: float = 0.0
    squares: float = 0.0
    values: int = 0

    def add(self, got: torch.Tensor, exact: torch.Tensor) -> None:
        ours, theirs = got.double().log_softmax(-1), exact.double().log_softmax(-1)
        differs = ours.argmax(-1) != theirs.argmax(-1)
        first_two = exact.double().topk(2).values
        clear = first_two[:, 0] - first_two[:, 1] >= NEAR_TIE
        self.count += len(got)
        self.same += int((~differs).sum())
        self.clear_misses += int((differs & clear).sum())
        self.divergence += float((theirs.exp() * (theirs - ours)).sum())
        self.squares += float((theirs - ours).square().sum())
        self.values += got.numel()

    @property
    def agreement(self) -> float:
        return self.same / self.count

    @property
    def mean_divergence(self) -> float:
        return self.divergence / self.count

    @property
    def rms(self) -> float:
        return float((self.squares / self.values) ** 0.5)

    def row(self) -> str:
        return (
            f"{self.name:34} {100 * self.agreement:8.2f} % {self.count - self.same:6d} {self.clear_misses:6d}"
            f" {self.mean_divergence:12.2e} {self.rms:10.4f}"
        )


HEADER = f"{'engine':34} {'top-1 same':>10} {'other':>6} {'clear':>6} {'mean KL':>12} {'rms':>10}"


def compare(model: Path, cache: Path) -> dict[str, Score]:
    """Scores by engine: ours in fp32 and bf16, llama.cpp on the quantised file. `cache` holds F32 files."""
    from support.f32_gguf import as_f32
    from support.llamacpp_logits import llama_logits

    exact_model = as_f32(model, cache)
    scores = {name: Score(name) for name in ("halogend fp32", "halogend bf16", "llama.cpp, quantised file")}
    for tokens in sequences(model):
        vocab = vocab_size(model)
        exact = torch.from_numpy(llama_logits(exact_model, tokens, vocab, exact=True))
        for name, precision in (("halogend fp32", "fp32"), ("halogend bf16", "bf16")):
            score_engine(scores[name], model, precision, tokens, exact)
        quantised = torch.from_numpy(llama_logits(model, tokens, vocab, exact=False))
        for first in range(0, len(tokens), CHUNK):
            part = slice(first, first + CHUNK)
            scores["llama.cpp, quantised file"].add(quantised[part], exact[part])
    return scores


def sequences(model: Path) -> list[list[int]]:
    """TOKENS tokens in two sequences: English, then code for the rest."""
    from halogend.checkpoint.gguf import read_header
    from halogend.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_header(read_header(model))
    english, code = (
        tokenizer.encode((TEXTS / name).read_text(), add_special=True, parse_special=False)
        for name in ("english.txt", "code.txt")
    )
    english = english[: TOKENS // 2]
    code = code[: TOKENS - len(english)]
    if len(english) + len(code) != TOKENS:
        raise RuntimeError(f"the texts give {len(english)} + {len(code)} tokens, not {TOKENS}")
    return [english, code]


def vocab_size(model: Path) -> int:
    from halogend.checkpoint.checkpoint import open_checkpoint

    return open_checkpoint(model).geometry.vocab


def score_engine(score: Score, model: Path, precision: str, tokens: list[int], exact: torch.Tensor) -> None:
    for first, logits in engine_logits(model, precision, tokens):
        score.add(logits, exact[first : first + len(logits)])


def engine_logits(model: Path, precision: str, tokens: list[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """(first position, logits [up to CHUNK, vocab]) for all positions. Each chunk is computed as rows
    of their own (the decode path), then once more as a prompt chunk (the prefill path), whose K and
    V are what later chunks see."""
    from support.engine_driver import load_engine, spread

    from halogend.sched.blocks import blocks_for
    from halogend.sched.step import StepItem, StepPlan

    engine = load_engine(model, precision=precision, pool_bytes=POOL_BYTES)
    runner = engine.runner
    runner.set_threads(2)
    slots = torch.zeros(1, dtype=torch.int64)
    blocks = spread(engine, range(1, 1 + blocks_for(len(tokens))))

    def item(start: int, end: int, *, samples: bool) -> StepItem:
        return StepItem(start, 0, start, tuple(tokens[start:end]), from_slot=False, blocks=blocks, samples=samples)

    for first in range(0, len(tokens), CHUNK):
        end = min(first + CHUNK, len(tokens))
        rows = tuple(item(position, position + 1, samples=True) for position in range(first, end))
        yield first, runner.forward(StepPlan(first, rows), slots)
        runner.forward(StepPlan(first, (item(first, end, samples=False),)), slots)


def report(model: Path, scores: dict[str, Score]) -> str:
    return "\n".join([model.name, HEADER, *(score.row() for score in scores.values())])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    for path in sys.argv[1:]:
        print(report(Path(path), compare(Path(path), ROOT / ".cache/f32")), flush=True)
