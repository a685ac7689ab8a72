"""A tiny Gemma 3 that sees, as transformers saves it, and as it and older versions name its tensors.

tiny = make(tmp_path / "model", like=tiny_hf.make("gemma3_text", ...))     the same text model in it
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from support.tiny_hf import TinyDir, quiet, read_config
from support.tiny_layouts import read_state, write_dir
from support.tiny_tokenizer import write_tokenizer

_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
# What a directory of such a model holds beside, for images.
PROCESSOR_FILES = {
    "preprocessor_config.json": {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 28, "width": 28}},
    "processor_config.json": {"processor_class": "Gemma3Processor", "image_seq_length": 4},
    "added_tokens.json": {"<image_soft_token>": 40},
}
OLDER = {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
NEWER = {"language_model.model.": "model.language_model.", "vision_tower.": "model.vision_tower."} | {
    "multi_modal_projector.": "model.multi_modal_projector."
}


class TinyMultimodal(TinyDir):
    @property
    def config(self) -> dict[str, Any]:
        """Of the text model."""
        return dict(read_config(self.source)["text_config"])


def make(path: Path, like: TinyDir) -> TinyMultimodal:
    quiet()
    from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

    text = AutoModelForCausalLM.from_pretrained(like.source, dtype=torch.float32)
    tokens = {"image_token_index": 7, "boi_token_index": 8, "eoi_token_index": 9}
    config = Gemma3Config(text_config=like.config, vision_config=dict(_VISION), mm_tokens_per_image=4, **tokens)
    model = Gemma3ForConditionalGeneration(config).float()
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.save_pretrained(path, max_shard_size="150KB")
    write_tokenizer(path, like.vocab)
    for name, content in PROCESSOR_FILES.items():
        (path / name).write_text(json.dumps(content))
    return TinyMultimodal(path, like.name, path)


def renamed(tiny: TinyMultimodal, path: Path, names: dict[str, str]) -> TinyMultimodal:
    """The same with other beginnings of tensors' names."""

    def rename(name: str) -> str:
        return next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), name)

    return changed(tiny, path, lambda state: {rename(name): tensor for name, tensor in state.items()})


def changed(
    tiny: TinyMultimodal,
    path: Path,
    tensors: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]] = dict,
    config: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> TinyMultimodal:
    state = {name: tensor.clone() for name, tensor in tensors(read_state(tiny.source)).items()}
    write_dir(path, state, config(read_config(tiny.source)), tiny.source)
    return replace(tiny, path=path)
