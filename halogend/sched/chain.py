"""The names of blocks: a chain of hashes over a sequence's tokens, salted by whose blocks they are."""

from __future__ import annotations

from array import array
from hashlib import sha256

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.errors import InvariantError

_BLOCK_BYTES = BLOCK_TOKENS * array("I").itemsize
_HASHED_AT_ONCE = 64  # blocks that are packed together; a long prompt's chain grows as it is computed


class Chain:
    """The keys of a sequence's full blocks, computed as far as they are asked for: each is the sha256 of the key
    before it and the block's tokens, the first one's of `scope`. So a key stands for everything up to the end of
    its block, and what one scope computed is never found from another. `tokens` is read as it grows."""

    __slots__ = ("_keys", "_tokens", "root")

    def __init__(self, scope: bytes, tokens: list[int]) -> None:
        self.root = sha256(scope).digest()
        self._tokens = tokens
        self._keys: list[bytes] = []

    def key(self, place: int) -> bytes:
        """Of the block that begins at position `place` * BLOCK_TOKENS. Raises InvariantError while it is not full."""
        while place >= len(self._keys):
            self._hash_some()
        return self._keys[place]

    def _hash_some(self) -> None:
        first = len(self._keys)
        last = min(len(self._tokens) // BLOCK_TOKENS, first + _HASHED_AT_ONCE)
        if last <= first:
            raise InvariantError(f"block {first} of {len(self._tokens)} tokens is not full")
        packed = array("I", self._tokens[first * BLOCK_TOKENS : last * BLOCK_TOKENS]).tobytes()
        key = self._keys[-1] if self._keys else self.root
        for at in range(0, len(packed), _BLOCK_BYTES):
            key = sha256(key + packed[at : at + _BLOCK_BYTES]).digest()
            self._keys.append(key)
