"""What each error code means: its heading, why it comes, what to do about it. One module for each kind of code.

Knows the codes as texts only; their names are in `codes`, which asks for a row for every one.
"""

from __future__ import annotations

from collections.abc import Mapping

from halogend.config.meanings import checkpoints, contradictions, reading, requests, running

MEANINGS: Mapping[str, tuple[str, str, str]] = {
    **reading.ROWS,
    **contradictions.ROWS,
    **checkpoints.ROWS,
    **running.ROWS,
    **requests.ROWS,
}
