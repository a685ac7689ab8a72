"""Which weights a model must have, and where a checkpoint has each.

Weights are named as in GGUF, without `.weight`; expert E's have `.E` at the end. A tensor that is
missing, surplus or of another shape is refused by name before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.errors import TENSOR_MISMATCH, TENSOR_MISSING, CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.names import TensorNames
from halogend.checkpoint.stored import Encoded, Piece, Plain, Weight, whole
from halogend.checkpoint.surplus import Surplus, check_surplus


@dataclass(frozen=True, slots=True)
class Share:
    """Rows `first` and on of the stored matrix `part`, which has `rows` in all."""

    part: str
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A weight: by itself, or as a share of a stored matrix that holds several. A vector is a column."""

    name: str
    rows: int
    columns: int
    shares: tuple[Share, ...] = ()


def wanted_weights(g: Geometry) -> Iterator[Wanted]:
    """Every weight of the model, in the order of use."""
    yield Wanted("token_embd", g.vocab, g.hidden)
    for name, count in _divisors(g).items():
        yield Wanted(name, count, 1)
    for layer in range(g.layers):
        for each in (*_attention(g), *_feed_forward(g, layer)):
            yield Wanted(f"blk.{layer}.{each.name}", each.rows, each.columns, each.shares)
    yield Wanted("output_norm", g.hidden, 1)
    if not g.tied_embeddings:
        yield Wanted("output", g.vocab, g.hidden)


def find_weights(
    geometry: Geometry,
    stored: Mapping[str, Encoded],
    names: TensorNames,
    path: Path,
    files: Sequence[Path],
    surplus: Surplus = Surplus.REFUSED,
) -> Mapping[str, Weight]:
    """Each weight's place by its name. `stored` has the names that the `files` of the checkpoint at
    `path` have. Raises CheckpointError naming the first tensor that is missing, misshapen or, unless `surplus` allows
    for it, surplus."""
    finder = _Finder(stored, names, path, files)
    found = {wanted.name: finder.find(wanted) for wanted in wanted_weights(geometry)}
    check_surplus(stored, frozenset(finder.used), names, geometry, files, surplus)
    return found


class _Finder:
    """Looks weights up, and remembers which stored matrices were of use."""

    def __init__(self, stored: Mapping[str, Encoded], names: TensorNames, path: Path, files: Sequence[Path]) -> None:
        self._stored = stored
        self._names = names
        self._path = path
        self._files = files
        self.used: set[str] = set()

    def find(self, wanted: Wanted) -> Weight:
        alone = [name for name in self._names.of(wanted.name) if name in self._stored]
        for name in alone:
            encoded = self._stored[name]
            if (encoded.rows, encoded.columns) == (wanted.rows, wanted.columns):
                self.used.add(name)
                return whole(encoded)
        for share in wanted.shares:
            for name in self._names.of(_beside(wanted.name, share.part)):
                weight = self._share(name, wanted, share)
                if weight is not None:
                    return weight
        raise self._refusal(wanted, alone)

    def _share(self, name: str, wanted: Wanted, share: Share) -> Weight | None:
        encoded = self._stored.get(name)
        if encoded is None or (encoded.rows, encoded.columns) != (share.rows, wanted.columns):
            return None
        self.used.add(name)
        return Weight((Piece(encoded, share.first, wanted.rows),), wanted.rows, wanted.columns)

    def _refusal(self, wanted: Wanted, alone: list[str]) -> CheckpointError:
        if alone:
            return self._misshapen(alone[0], wanted.rows, wanted.columns)
        for share in wanted.shares:
            for name in self._names.of(_beside(wanted.name, share.part)):
                if name in self._stored:
                    return self._misshapen(name, share.rows, wanted.columns)
        name = self._names.of(wanted.name)[0]
        return CheckpointError(TENSOR_MISSING, f"{self._path}: tensor {name!r} is missing")

    def _misshapen(self, name: str, rows: int, columns: int) -> CheckpointError:
        encoded = self._stored[name]
        tensor = encoded.tensors[0]
        if isinstance(encoded, Plain):
            found = f"has shape {list(tensor.shape)}"
        else:
            found = f"holds a matrix of {[encoded.rows, encoded.columns]}"
        given = [rows] if columns == 1 else [rows, columns]
        message = f"{self._files[tensor.file]}: tensor {tensor.name!r} {found}; {self._names.source} gives {given}"
        return CheckpointError(TENSOR_MISMATCH, message)


def _beside(name: str, part: str) -> str:
    """`part` in the same layer as the weight `name`."""
    return f"{'.'.join(name.split('.')[:2])}.{part}"


def _divisors(g: Geometry) -> dict[str, int]:
    """Vectors of the checkpoint that rotary frequencies are divided by."""
    ropes = [each for rope in g.ropes for each in (rope, rope.beyond) if each is not None]
    return {rope.divisors: len(rope.frequencies) for rope in ropes if rope.divisors is not None}


def _attention(g: Geometry) -> Iterator[Wanted]:
    query, key = g.heads * g.head_dim, g.kv_heads * g.head_dim
    total = query + 2 * key
    yield Wanted("attn_norm", g.hidden, 1)
    for name, rows, first in (("attn_q", query, 0), ("attn_k", key, query), ("attn_v", key, query + key)):
        yield Wanted(name, rows, g.hidden, (Share("attn_qkv", first, total),))
        if g.qkv_bias:
            yield Wanted(f"{name}.bias", rows, 1, (Share("attn_qkv.bias", first, total),))
    if g.qk_norm:
        yield Wanted("attn_q_norm", g.head_dim, 1)
        yield Wanted("attn_k_norm", g.head_dim, 1)
    yield Wanted("attn_output", g.hidden, query)
    if g.output_bias:
        yield Wanted("attn_output.bias", g.hidden, 1)
    if g.post_norms:
        yield Wanted("post_attention_norm", g.hidden, 1)


def _feed_forward(g: Geometry, layer: int) -> Iterator[Wanted]:
    yield Wanted("ffn_norm", g.hidden, 1)
    if g.has_experts(layer):
        yield from _experts(g)
    else:
        both = 2 * g.ffn
        yield Wanted("ffn_gate", g.ffn, g.hidden, (Share("ffn_gate_up", 0, both),))
        yield Wanted("ffn_up", g.ffn, g.hidden, (Share("ffn_gate_up", g.ffn, both),))
        yield Wanted("ffn_down", g.hidden, g.ffn)
    if g.post_norms:
        yield Wanted("post_ffw_norm", g.hidden, 1)


def _experts(g: Geometry) -> Iterator[Wanted]:
    if g.experts is None:
        return
    count, ffn, hidden = g.experts.count, g.experts.ffn, g.hidden
    yield Wanted("ffn_gate_inp", count, hidden)
    for e in range(count):
        gate = (Share("ffn_gate_exps", e * ffn, count * ffn), Share("ffn_gate_up_exps", 2 * e * ffn, 2 * count * ffn))
        up = (Share("ffn_up_exps", e * ffn, count * ffn), Share("ffn_gate_up_exps", (2 * e + 1) * ffn, 2 * count * ffn))
        yield Wanted(f"ffn_gate.{e}", ffn, hidden, gate)
        yield Wanted(f"ffn_up.{e}", ffn, hidden, up)
        yield Wanted(f"ffn_down.{e}", hidden, ffn, (Share("ffn_down_exps", e * hidden, count * hidden),))
