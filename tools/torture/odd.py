"""Answers that are none of those learned at rest, and what the models that may have given them say of them.

Each model is asked in a process of its own, when the daemon is gone.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterable

import msgspec

from torture.document import Wish
from torture.evidence import Evidence
from torture.messages import Case, Judged


async def judge(evidence: Evidence, served: Iterable[Wish], say: Callable[[str], None]) -> None:
    """`served` are documents of models whose arithmetic does not fix every token. An answer is right where one of them
    may have given it."""
    odd = odd_answers(evidence)
    for wish in served if odd else ():
        say(f"{wish.checkpoint.kind}: {len(odd)} answers that were not learned are judged")
        try:
            found = await asyncio.to_thread(ask, Case(document=wish.text(), answers=odd))
        except (subprocess.CalledProcessError, msgspec.DecodeError) as error:
            evidence.faults.append(f"answers of {wish.checkpoint.path.name} were not judged: {error}")
            continue
        for each, judged in zip(odd, found, strict=True):
            evidence.judged[each] = better(evidence.judged.get(each), judged)


def odd_answers(evidence: Evidence) -> tuple[tuple[int, str], ...]:
    """Each once, those of a prompt in the order of their texts: what begins alike is judged one after the other."""
    return tuple(sorted({(each.prompt, each.text) for each in evidence.whole if not evidence.is_learned(each)}))


def ask(case: Case) -> list[Judged]:
    """In the order of its answers. Raises CalledProcessError where the judge fails."""
    command = [sys.executable, "-m", "torture.judge"]
    done = subprocess.run(command, input=msgspec.json.encode(case), stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=list[Judged])


def better(one: Judged | None, other: Judged) -> Judged:
    """Of two models the one that may have given the answer, else that which follows it farther."""
    if one is None or (other.is_right, other.at_chars) > (one.is_right, one.at_chars):
        return other
    return one
