"""What each family of models publishes of its tokenizer: normaliser, word cutting, post-processor, added
tokens, chat template. `family_vocabs` trains vocabularies for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Added:
    """An added token."""

    text: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    single_word: bool = False

    def entry(self, index: int) -> dict[str, Any]:
        flags = {name: getattr(self, name) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        return {"id": index, "content": self.text, **flags}


@dataclass(frozen=True)
class Family:
    """`first` are the special tokens whose ids come before the vocabulary, `last` those after it.
    `pipeline` are the parts of tokenizer.json beside the model."""

    name: str
    kind: str  # bytes | spm
    first: tuple[Added, ...]
    last: tuple[Added, ...]
    pipeline: Mapping[str, Any]
    model: Mapping[str, Any]
    config: Mapping[str, Any]  # of tokenizer_config.json
    model_type: str
    gguf: Mapping[str, Any]  # of `tokenizer.ggml.`
    template: str | None = None
    name_in_gguf: str | None = None
    bos: str | None = None
    eos: str | None = None


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _byte_level(*, regex: bool = False) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def _bytes_pipeline(pattern: str | None, **parts: Any) -> dict[str, Any]:
    cut = (
        {"type": "Sequence", "pretokenizers": [_split(pattern), _byte_level()]} if pattern else _byte_level(regex=True)
    )
    return {"pre_tokenizer": cut, "decoder": _byte_level(regex=True), "post_processor": _byte_level(), **parts}


_UNSPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_SPM_DECODER = {"type": "Sequence", "decoders": [_UNSPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]}
_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_LLAMA2 = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, _SPACE]}
_SPM_MODEL = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] +"
    " ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
_PHI3 = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
_LLAMA3_CHAT = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_GEMMA_CHAT = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n'"
    " + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_SENTENCE = (Added("<unk>"), Added("<s>"), Added("</s>"))
_TEKKEN_FIRST = (*_SENTENCE, Added("[INST]"), Added("[/INST]"), Added("[TOOL_CALLS]"), Added("<pad>"))
_CHATML_LAST = (Added("<|endoftext|>"), Added("<|im_start|>"), Added("<|im_end|>"))
_FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
_LLAMA_CLASS = {"tokenizer_class": "LlamaTokenizer", "unk_token": "<unk>", "legacy": True}

_ALL = (
    Family(
        name="llama3",
        kind="bytes",
        first=(),
        last=tuple(
            map(
                Added,
                ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            )
        ),
        pipeline=_bytes_pipeline(LLAMA3, post_processor="bos"),
        model={"ignore_merges": True},
        config=_FAST,
        model_type="llama",
        gguf={"pre": "llama-bpe"},
        template=_LLAMA3_CHAT,
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
    ),
    Family(
        name="mistral-spm",
        kind="spm",
        first=_SENTENCE,
        last=(),
        pipeline={"normalizer": _LLAMA2, "decoder": _SPM_DECODER, "post_processor": "bos"},
        model=_SPM_MODEL,
        config={**_LLAMA_CLASS, "add_bos_token": True, "add_eos_token": False},
        model_type="mistral",
        gguf={},
        template=_INST,
        bos="<s>",
        eos="</s>",
    ),
    Family(
        name="mistral-spm-v3",
        kind="spm",
        first=(*_SENTENCE, Added("[INST]"), Added("[/INST]"), Added("[TOOL_CALLS]")),
        last=(),
        pipeline={
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
            "decoder": _SPM_DECODER,
            "post_processor": "bos",
        },
        model=_SPM_MODEL,
        config={**_LLAMA_CLASS, "legacy": False, "add_bos_token": True, "add_eos_token": False},
        model_type="mistral",
        gguf={},
        template=_INST,
        bos="<s>",
        eos="</s>",
    ),
    Family(
        name="mistral-tekken",
        kind="bytes",
        first=_TEKKEN_FIRST,
        last=(),
        pipeline=_bytes_pipeline(TEKKEN, post_processor="bos"),
        model={"ignore_merges": True},
        config=_FAST,
        model_type="mistral",
        gguf={"pre": "tekken"},
        template=_INST,
        bos="<s>",
        eos="</s>",
    ),
    Family(
        name="qwen2",
        kind="bytes",
        first=(),
        last=_CHATML_LAST,
        pipeline=_bytes_pipeline(QWEN, normalizer={"type": "NFC"}),
        model={},
        config={"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "pad_token": "<|endoftext|>"},
        model_type="qwen2",
        gguf={"pre": "qwen2", "add_bos_token": False},
        template=_CHATML,
        eos="<|im_end|>",
    ),
    Family(
        name="qwen3",
        kind="bytes",
        first=(),
        last=(*_CHATML_LAST, *(Added(text, special=False) for text in ("<tool_call>", "</tool_call>", "<think>"))),
        pipeline=_bytes_pipeline(QWEN, normalizer={"type": "NFC"}),
        model={},
        config={"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "pad_token": "<|endoftext|>"},
        model_type="qwen3",
        gguf={"pre": "qwen2", "add_bos_token": False},
        template=_CHATML,
        eos="<|im_end|>",
    ),
    Family(
        name="gemma",
        kind="spm",
        first=tuple(map(Added, ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])),
        last=(
            Added("<start_of_turn>"),
            Added("<end_of_turn>"),
            *(Added(text, special=False) for text in ("\n\n", "\n\n\n", "<table>", "</h1>", "<unused0>")),
        ),
        pipeline={
            "normalizer": _SPACE,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"String": " "},
                "behavior": "MergedWithPrevious",
                "invert": False,
            },
            "decoder": _SPM_DECODER,
            "post_processor": "bos",
        },
        model=_SPM_MODEL,
        config={"tokenizer_class": "GemmaTokenizer", "unk_token": "<unk>", "pad_token": "<pad>", "add_bos_token": True},
        model_type="gemma2",
        gguf={"add_space_prefix": False},
        template=_GEMMA_CHAT,
        bos="<bos>",
        eos="<eos>",
    ),
    Family(
        name="phi3-spm",
        kind="spm",
        first=(Added("<unk>"), Added("<s>"), Added("</s>", special=False, rstrip=True)),
        last=(
            Added("<|endoftext|>"),
            *(Added(text, rstrip=True) for text in ("<|assistant|>", "<|system|>", "<|end|>", "<|user|>")),
        ),
        pipeline={"normalizer": _LLAMA2, "decoder": _SPM_DECODER, "post_processor": "none"},
        model=_SPM_MODEL,
        config={**_LLAMA_CLASS, "legacy": False, "add_bos_token": False, "add_eos_token": False},
        model_type="phi3",
        gguf={"add_bos_token": False},
        template=_PHI3,
        name_in_gguf="Phi-3 mini",
        bos="<s>",
        eos="<|endoftext|>",
    ),
    Family(
        name="phi4",
        kind="bytes",
        first=(),
        last=tuple(
            Added(text, lstrip=True, rstrip=True)
            for text in ("<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>")
        ),
        pipeline=_bytes_pipeline(LLAMA3),
        model={},
        config={"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False},
        model_type="phi3",
        gguf={"pre": "dbrx"},
        template=_CHATML,
        bos="<|endoftext|>",
        eos="<|im_end|>",
    ),
    Family(
        name="smollm",
        kind="bytes",
        first=_CHATML_LAST,
        last=(),
        pipeline={
            **_bytes_pipeline(None),
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, _byte_level(regex=True)],
            },
        },
        model={},
        config=_FAST,
        model_type="llama",
        gguf={"pre": "smollm", "add_bos_token": False},
        template=_CHATML,
        bos="<|im_start|>",
        eos="<|im_end|>",
    ),
    Family(
        name="gpt-2",
        kind="bytes",
        first=(),
        last=(Added("<|endoftext|>", normalized=True),),
        pipeline=_bytes_pipeline(None),
        model={},
        config={"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False},
        model_type="gpt2",
        gguf={"pre": "gpt-2"},
        bos="<|endoftext|>",
        eos="<|endoftext|>",
    ),
)
FAMILIES = {family.name: family for family in _ALL}
