"""`python -m halogend.text.encode MODEL < TEXT`: the text's token ids as a JSON array, a BOS before them where the
model wants one. For measurements, which need the ids and no text process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from halogend.checkpoint.files import is_directory
from halogend.checkpoint.formats import resolve_format
from halogend.checkpoint.gguf import read_header
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.tokenizer import Tokenizer


def encode(path: str, text: str) -> list[int]:
    """Of a Hugging Face directory or a GGUF file. Raises CheckpointError."""
    if resolve_format(path, "auto") == "gguf":
        tokenizer = Tokenizer.from_header(read_header(path))
    else:
        directory = Path(path)
        tokenizer = Tokenizer.from_files(read_text_files(directory if is_directory(directory) else directory.parent))
    return tokenizer.encode(text, add_special=True, parse_special=False)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(encode(sys.argv[1], sys.stdin.read())) + "\n")
