"""A vocabulary from a GGUF header."""

from __future__ import annotations

from halogend.checkpoint import gguf_keys
from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError, shown
from halogend.checkpoint.gguf import GgufHeader
from halogend.text.pretokenize import CUTTINGS, Cutting
from halogend.text.vocabulary import TokenType, Vocabulary, as_in, named_ends

_KINDS = {"gpt2": "bpe", "llama": "spm"}
_END_OF_TURN_NAMES = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>", "_<EOT>")
_TYPE_OF = {0: TokenType.NORMAL, **{int(kind): kind for kind in TokenType}}


def read_vocabulary(header: GgufHeader) -> Vocabulary:
    """As llama.cpp reads it: types are overridden for tokens that end a generation by their name.

    Raises CheckpointError naming the key for a tokenizer that is missing, broken or of a kind that is
    not supported.
    """
    kind = _kind(header)
    tokens = tuple(header.strings("tokenizer.ggml.tokens"))
    if not tokens:
        raise gguf_keys.invalid(header, "tokenizer.ggml.tokens", "is empty")
    ids = {text: index for index, text in enumerate(tokens)}
    eos_id = _special_id(header, "eos", tokens)
    eot_id = _special_id(header, "eot", tokens)
    if eot_id is None:
        eot_id = next((ids[name] for name in _END_OF_TURN_NAMES if name in ids), None)
    ends = named_ends(ids)
    types = _types(header, len(tokens), ends)
    named = [_special_id(header, name, tokens) for name in ("eom", "fim_pad", "fim_rep", "fim_sep")]
    ends |= {index for index in (eos_id, eot_id, *named) if index is not None}
    cutting = _cutting(header) if kind == "bpe" else None
    adds_bos = cutting.adds_bos if cutting is not None else True
    return Vocabulary(
        tokens=tokens,
        types=types,
        end_ids=frozenset(ends),
        cutting=cutting,
        merges=_merges(header, tokens) if kind == "bpe" else (),
        scores=_scores(header, len(tokens)) if kind == "spm" else (),
        bos_id=_special_id(header, "bos", tokens),
        eos_id=eos_id,
        unknown_id=_special_id(header, "unknown", tokens),
        add_bos=gguf_keys.flag(header, "tokenizer.ggml.add_bos_token", default=adds_bos),
        add_eos=gguf_keys.flag(header, "tokenizer.ggml.add_eos_token", default=False),
        strips_right=_strips_right(header, tokens, types),
        add_space_prefix=gguf_keys.flag(header, "tokenizer.ggml.add_space_prefix", default=kind == "spm"),
    )


def unknown_merge(header: GgufHeader, vocabulary: Vocabulary) -> CheckpointError | None:
    """The first merge of a piece that is no token, where there is one: the package does not say which."""
    known = frozenset(vocabulary.tokens)
    for index, (left, right) in enumerate(vocabulary.merges):
        unknown = next((text for text in (left, right, left + right) if text not in known), None)
        if unknown is not None:
            what = f"holds {shown(left + ' ' + right)} at {index}, but {shown(unknown)} is none of the tokens"
            message = f"{header.path}: metadata key 'tokenizer.ggml.merges' {what}"
            return CheckpointError(TOKENIZER_INVALID, message)
    return None


def _kind(header: GgufHeader) -> str:
    model = gguf_keys.text(header, "tokenizer.ggml.model")
    if model not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise CheckpointError(
            TOKENIZER_INVALID,
            f"{header.path}: metadata key 'tokenizer.ggml.model' is {shown(model)}; supported are {known}",
        )
    return _KINDS[model]


def _cutting(header: GgufHeader) -> Cutting:
    pre = gguf_keys.text(header, "tokenizer.ggml.pre", "default")
    if pre not in CUTTINGS:
        known = ", ".join(sorted(CUTTINGS))
        raise CheckpointError(
            TOKENIZER_INVALID,
            f"{header.path}: metadata key 'tokenizer.ggml.pre' is {shown(pre)}; supported are {known}",
        )
    return CUTTINGS[pre]


def _merges(header: GgufHeader, tokens: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    own = as_in(tokens)
    cut = (merge.partition(" ") for merge in header.strings("tokenizer.ggml.merges"))
    return tuple((own(left), own(right)) for left, _, right in cut)


def _strips_right(header: GgufHeader, tokens: tuple[str, ...], types: tuple[TokenType, ...]) -> frozenset[int]:
    """The file cannot say it, so llama.cpp goes by the model's name: Phi-3's special tokens do."""
    name = header.metadata.get("general.name", "")
    if not isinstance(name, str) or not any(each in name.lower() for each in ("phi-3", "phi3")):
        return frozenset()
    special = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    return frozenset(
        index
        for index, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if text == "</s>" or (kind in special and text not in ("<unk>", "<s>", "<|endoftext|>"))
    )


def _special_id(header: GgufHeader, name: str, tokens: tuple[str, ...]) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    if not header.has(key):
        return None
    return gguf_keys.integer(header, key, least=0, most=len(tokens) - 1)


def _types(header: GgufHeader, count: int, ends: set[int]) -> tuple[TokenType, ...]:
    key = "tokenizer.ggml.token_type"
    if not header.has(key):
        return tuple(TokenType.CONTROL if index in ends else TokenType.NORMAL for index in range(count))
    numbers = header.numbers(key)
    if len(numbers) != count:
        raise gguf_keys.invalid(header, key, f"has {len(numbers)} elements for {count} tokens")
    try:
        types = [_TYPE_OF[int(number)] for number in numbers]
    except (KeyError, ValueError, OverflowError) as error:
        raise gguf_keys.invalid(header, key, f"has an unknown type: {error}") from error
    for index in ends:
        types[index] = TokenType.CONTROL
    return tuple(types)


def _scores(header: GgufHeader, count: int) -> tuple[float, ...]:
    key = "tokenizer.ggml.scores"
    scores = header.numbers(key)
    if len(scores) != count:
        raise gguf_keys.invalid(header, key, f"has {len(scores)} elements for {count} tokens")
    if any(score != score for score in scores):  # noqa: PLR0124 - only NaN differs from itself
        raise gguf_keys.invalid(header, key, "holds a score that is no number")
    return scores
