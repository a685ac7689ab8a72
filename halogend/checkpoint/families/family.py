"""What a family declares, and the reading that families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from halogend.checkpoint.errors import shown
from halogend.checkpoint.geometry import Activation, Experts, Geometry
from halogend.checkpoint.parameters import Parameters
from halogend.checkpoint.rope import Rope

Names = Mapping[str, tuple[str, ...]]
# Every expert has three weights whose places are looked up: more than these cost gigabytes before one is missed.
_MOST_EXPERTS = 1024
_MOST_EXPERTS_IN_ALL = 1 << 18

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}

HF_TOP: Names = MappingProxyType(
    {
        "token_embd": ("model.embed_tokens.weight",),
        "output_norm": ("model.norm.weight",),
        "output": ("lm_head.weight",),
    }
)
# Under `model.layers.N.`; `{expert}` is the expert's number. Two names are two layouts that are in use.
HF_LAYER: Names = MappingProxyType(
    {
        "attn_norm": ("input_layernorm.weight",),
        "attn_q": ("self_attn.q_proj.weight",),
        "attn_k": ("self_attn.k_proj.weight",),
        "attn_v": ("self_attn.v_proj.weight",),
        "attn_qkv": ("self_attn.qkv_proj.weight",),
        "attn_output": ("self_attn.o_proj.weight",),
        "attn_q.bias": ("self_attn.q_proj.bias",),
        "attn_k.bias": ("self_attn.k_proj.bias",),
        "attn_v.bias": ("self_attn.v_proj.bias",),
        "attn_qkv.bias": ("self_attn.qkv_proj.bias",),
        "attn_output.bias": ("self_attn.o_proj.bias",),
        "attn_q_norm": ("self_attn.q_norm.weight",),
        "attn_k_norm": ("self_attn.k_norm.weight",),
        "ffn_norm": ("post_attention_layernorm.weight",),
        "ffn_gate": ("mlp.gate_proj.weight",),
        "ffn_up": ("mlp.up_proj.weight",),
        "ffn_gate_up": ("mlp.gate_up_proj.weight",),
        "ffn_down": ("mlp.down_proj.weight",),
        "ffn_gate_inp": ("mlp.gate.weight",),
        "ffn_gate.expert": ("mlp.experts.{expert}.gate_proj.weight",),
        "ffn_up.expert": ("mlp.experts.{expert}.up_proj.weight",),
        "ffn_down.expert": ("mlp.experts.{expert}.down_proj.weight",),
        "ffn_gate_up_exps": ("mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj.weight"),
        "ffn_down_exps": ("mlp.experts.down_proj", "mlp.experts.down_proj.weight"),
    }
)
HF_SANDWICH: Names = MappingProxyType(
    {
        **HF_LAYER,
        "post_attention_norm": ("post_attention_layernorm.weight",),
        "ffn_norm": ("pre_feedforward_layernorm.weight",),
        "post_ffw_norm": ("post_feedforward_layernorm.weight",),
    }
)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text model among others: `section` of config.json describes it, its tensors' names begin with the
    keys of `names` in place of their values, those of the other parts with `others`."""

    section: str
    names: Mapping[str, str]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`gguf` is the `general.architecture` of its files, `hf` the class in config.json's
    `architectures`. `adjacent_pairs`: GGUF files hold the rows of Q and K with the two values of a rotary
    pair side by side. `norm_offset` is added to the norm weights of a Hugging Face directory (those of
    GGUF files have it in them). `keys` renames parameters of config.json. `defaults` are what its keys
    stand for where they are left out, which is not where they are null. `text_part`: where the model lies
    in directories that hold more.
    """

    name: str
    hf: str
    read: Callable[[Parameters], Geometry]
    gguf: str | None = None
    hf_layer: Names = field(default_factory=lambda: HF_LAYER)
    adjacent_pairs: bool = False
    norm_offset: float = 0.0
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    text_part: TextPart | None = None


def dense(p: Parameters, name: str, *, tied: bool = False, base: float = 10_000.0, **traits: Any) -> Geometry:
    """A decoder that attends to everything in each layer, with `traits` (fields of Geometry) in place of
    the usual. `tied`: whether the output is the embedding where the file does not say. Raises
    CheckpointError."""
    hidden = p.integer("hidden")
    heads = p.integer("heads", most=65536)
    layers = p.integer("layers", most=4096)
    kv_heads = _kv_heads(p, heads)
    head_dim = traits.pop("head_dim", None) or read_head_dim(p, hidden, heads)
    stated = p.tied_embeddings
    values: dict[str, Any] = {
        "architecture": name,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": p.integer("ffn"),
        "vocab": p.vocab,
        "rms_eps": p.positive("rms_eps"),
        "windows": (None,) * layers,
        "rope_of": (0,) * layers,
        "query_scale": head_dim**-0.5,
        "tied_embeddings": tied if stated is None else stated,
    }
    if "ropes" not in traits:
        values["ropes"] = (p.rope("global", head_dim, base=base),)
    if "activation" not in traits:
        values["activation"] = read_activation(p, "silu")
    values |= traits
    return Geometry(context_length=_context_length(p, values["ropes"]), **values)


def read_head_dim(p: Parameters, hidden: int, heads: int) -> int:
    if not p.has("head_dim") and hidden % heads:
        p.invalid("hidden", f"is {hidden}, no multiple of {heads} heads")
    head_dim = p.integer("head_dim", hidden // heads, most=65536)
    if head_dim % 2:
        key = "head_dim" if p.has("head_dim") else "hidden"
        p.invalid(key, f"gives heads of {head_dim}; positions turn pairs, so it must be even")
    if (value_dim := p.integer("value_dim", head_dim)) != head_dim:
        p.unsupported("value_dim", f"is {value_dim}; only the head size {head_dim} is supported")
    return head_dim


def read_activation(p: Parameters, usual: str) -> Activation:
    """`usual` where the file does not say, which GGUF files never do."""
    stated = usual if p.is_gguf else p.text("activation", usual)
    if stated not in _ACTIVATIONS:
        p.unsupported("activation", f"is {shown(stated)}; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[stated]


def read_window(p: Parameters, usual: int = 0) -> int | None:
    """Positions a layer with a window sees, itself included, `usual` where the file does not say; None
    where there is none, which GGUF files may write as 0."""
    return p.integer("window", usual, least=0 if p.is_gguf else 1) or None


def layer_windows(p: Parameters, layers: int, slides: Callable[[int], bool], usual: int = 0) -> tuple[int | None, ...]:
    """By `layer_types` where the file lists them, else by `slides`; `usual` as in `read_window`."""
    window = read_window(p, usual)
    types = p.texts("layer_types")
    if types is None:
        return tuple(window if slides(index) else None for index in range(layers))
    if len(types) != layers:
        p.invalid("layer_types", f"has {len(types)} entries for {layers} layers")
    if strange := set(types) - {"full_attention", "sliding_attention"}:
        p.unsupported("layer_types", f"has {shown(min(strange))}, which is not supported")
    if window is None and "sliding_attention" in types:
        p.invalid("window", "is missing, and layer_types names sliding layers")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def read_experts(p: Parameters, ffn: int, *, normalised: bool, layers: tuple[bool, ...]) -> Experts:
    count = p.integer("experts", most=_MOST_EXPERTS)
    if count * sum(layers) > _MOST_EXPERTS_IN_ALL:
        p.invalid("experts", f"is {count} in {sum(layers)} layers; up to {_MOST_EXPERTS_IN_ALL} in all are possible")
    if p.has("shared_experts") and (shared := p.integer("shared_experts", least=0)):
        p.unsupported("shared_experts", f"is {shared}; shared experts are not supported")
    used = p.integer("experts_used", most=_MOST_EXPERTS)
    if used > count:
        p.invalid("experts_used", f"is {used}, more than the {count} experts")
    return Experts(count, used, ffn, normalised, layers)


def _context_length(p: Parameters, ropes: Sequence[Rope]) -> int:
    """YaRN is switched on by people who leave the stated length as it was."""
    return max(p.integer("context_length"), *(rope.made_for or 0 for rope in ropes))


def _kv_heads(p: Parameters, heads: int) -> int:
    kv_heads = p.integer("kv_heads", heads)
    if heads % kv_heads:
        p.invalid("kv_heads", f"is {kv_heads}, no divisor of {heads} heads")
    return kv_heads
