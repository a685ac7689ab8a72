"""Which tensors a model must have, and of which shape.

A tensor that is missing, surplus, of another shape or of a type that nobody decodes is refused by
name before anything is loaded: a surplus bias that is left out gives a model that answers nonsense.
"""

from __future__ import annotations

from halogend.checkpoint.errors import TENSOR_MISMATCH, TENSOR_MISSING, TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.gguf import ArrayRef, GgufHeader
from halogend.checkpoint.gguf_types import DECODABLE

Shape = tuple[int, ...]


def expected_tensors(geometry: Geometry) -> dict[str, Shape]:
    """Name to row-major shape of every tensor of the model, in the order of use."""
    g = geometry
    expected: dict[str, Shape] = {"token_embd.weight": (g.vocab, g.hidden)}
    if g.rope_freqs:
        expected["rope_freqs.weight"] = (g.head_dim // 2,)
    for layer in range(g.layers):
        expected |= {f"blk.{layer}.{name}.weight": shape for name, shape in _layer_tensors(g).items()}
    expected["output_norm.weight"] = (g.hidden,)
    if not g.tied_embeddings:
        expected["output.weight"] = (g.vocab, g.hidden)
    return expected


def check_tensors(header: GgufHeader, geometry: Geometry) -> None:
    """Raises CheckpointError naming the first tensor that is missing, surplus, misshapen or of a type
    that cannot be decoded, or an embedding that is too small for the tokenizer."""
    expected = expected_tensors(geometry)
    for name, shape in expected.items():
        tensor = header.tensors.get(name)
        if tensor is None:
            raise CheckpointError(TENSOR_MISSING, f"{header.path}: tensor {name!r} is missing")
        if tensor.shape != shape:
            raise _mismatch(header, f"tensor {name!r} has shape {tensor.shape}; the metadata gives {shape}")
        if tensor.type not in DECODABLE:
            raise CheckpointError(
                TYPE_UNSUPPORTED, f"{header.path}: tensor {name!r} is {tensor.type.name}, which cannot be decoded"
            )
    _check_vocabulary(header, geometry)
    for name in header.tensors:
        if name not in expected:
            raise _mismatch(header, f"tensor {name!r} has no place in a {geometry.architecture} model")


def _check_vocabulary(header: GgufHeader, geometry: Geometry) -> None:
    """An embedding may have rows to spare, never fewer than there are tokens."""
    tokens = header.metadata.get("tokenizer.ggml.tokens", ())
    count = tokens.count if isinstance(tokens, ArrayRef) else len(tokens) if isinstance(tokens, tuple) else 0
    if count > geometry.vocab:
        raise _mismatch(
            header, f"tensor 'token_embd.weight' has {geometry.vocab} rows for the {count} tokens of the tokenizer"
        )


def _layer_tensors(g: Geometry) -> dict[str, Shape]:
    tensors: dict[str, Shape] = {
        "attn_norm": (g.hidden,),
        "attn_q": (g.heads * g.head_dim, g.hidden),
        "attn_k": (g.kv_heads * g.head_dim, g.hidden),
        "attn_v": (g.kv_heads * g.head_dim, g.hidden),
        "attn_output": (g.hidden, g.heads * g.head_dim),
        "ffn_norm": (g.hidden,),
        "ffn_gate": (g.ffn, g.hidden),
        "ffn_up": (g.ffn, g.hidden),
        "ffn_down": (g.hidden, g.ffn),
    }
    if g.qk_norm:
        tensors |= {"attn_q_norm": (g.head_dim,), "attn_k_norm": (g.head_dim,)}
    if g.architecture == "gemma3":
        tensors |= {"post_attention_norm": (g.hidden,), "post_ffw_norm": (g.hidden,)}
    return tensors


def _mismatch(header: GgufHeader, what: str) -> CheckpointError:
    return CheckpointError(TENSOR_MISMATCH, f"{header.path}: {what}")
