"""A model's parameters by one set of names, whatever the file calls them.

Families ask for `hidden` and get `llama.embedding_length` of a GGUF file or `hidden_size` of a
config.json; an error names the key as the file has it.
"""

from __future__ import annotations

from typing import Literal, NoReturn, Protocol

from halogend.checkpoint.rope import Rope

RopeKind = Literal["global", "local"]
# Of any number above 0 that a model states: what lies beyond is no model's, and arithmetic on it overflows.
LEAST, MOST = 1e-12, 1e12


class Parameters(Protocol):
    """Every look-up raises CheckpointError naming file and key: for what is missing without a default,
    of another type, or out of range."""

    @property
    def is_gguf(self) -> bool: ...

    @property
    def tied_embeddings(self) -> bool | None:
        """None where the file does not say."""
        ...

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        ...

    def has(self, name: str) -> bool: ...

    def integer(self, name: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int: ...

    def positive(self, name: str, default: float | None = None, *, or_zero: bool = False) -> float: ...

    def flag(self, name: str, *, default: bool) -> bool: ...

    def text(self, name: str, default: str | None = None) -> str: ...

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, or None where there is none."""
        ...

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, empty where there is none."""
        ...

    def rope(self, kind: RopeKind, head_dim: int, *, base: float = 10_000.0) -> Rope:
        """How positions turn heads of `head_dim`; `base` where the file does not say."""
        ...

    def invalid(self, name: str, what: str) -> NoReturn:
        """Raises: the key `name` stands for `what` (a sentence's end)."""
        ...

    def unsupported(self, name: str, what: str) -> NoReturn:
        """Raises: the model is sound, and this release does not run it."""
        ...
