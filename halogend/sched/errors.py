"""What the scheduler raises."""

from __future__ import annotations


class InvariantError(Exception):
    """Our own bug: state that cannot be. The worker must exit; nothing it holds can be trusted."""
