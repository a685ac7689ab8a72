"""Sampling from rows of logits, beside a sort and a multinomial draw in torch.

    python kernels/bench/sample.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]

Counted is one reading of the logits: what no way can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import frame
import torch
from frame import Case, Options
from halogen_kernels.sampling import Rule, rules
from halogen_kernels.triton.sample import sample

RULES = {
    "greedy": Rule(0.0, 0, 1.0, 0.0, 0.5),
    "top-p 0.85": Rule(0.6, 0, 0.85, 0.0, 0.5),
    "top-k 50, top-p 0.95": Rule(1.0, 50, 0.95, 0.0, 0.5),
    "all": Rule(1.0, 0, 1.0, 0.0, 0.5),
}


def cases(options: Options) -> Iterator[Case]:
    for rows, vocab in [(1, 300)] if options.small else [(1, 128_000), (32, 128_000), (32, 262_144)]:
        for name, rule in list(RULES.items())[: 2 if options.small else None]:
            yield Case(
                "sample",
                f"{rows} x {vocab}, {name}",
                rows * vocab * 4,
                rows * vocab,
                {"triton": ours(options, rows, vocab, rule), "torch": torchs(options, rows, vocab, rule)},
            )


def ours(options: Options, rows: int, vocab: int, rule: Rule) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        logits = torch.randn(rows, vocab, device=options.device) * 3
        how = rules([rule] * rows).to(options.device)
        return lambda: sample(logits, how)

    return make


def torchs(options: Options, rows: int, vocab: int, rule: Rule) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        logits = torch.randn(rows, vocab, device=options.device) * 3
        return lambda: drawn(logits, rule)

    return make


def drawn(logits: torch.Tensor, rule: Rule) -> torch.Tensor:
    if rule.temperature == 0:
        return logits.argmax(-1)
    values, ids = logits.sort(-1, descending=True)
    if rule.top_k:
        values, ids = values[:, : rule.top_k], ids[:, : rule.top_k]
    weights = (values / rule.temperature).softmax(-1)
    weights = weights.masked_fill(weights.cumsum(-1) - weights > rule.top_p, 0.0)
    return ids.gather(-1, torch.multinomial(weights, 1))


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
