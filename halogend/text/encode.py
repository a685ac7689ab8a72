"""`python -m halogend.text.encode MODEL < TEXT`: the text's token ids as a JSON array, a BOS before them where the
model wants one. For measurements, which need the ids and no text process."""

from __future__ import annotations

import json
import sys

from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.own_text import open_text
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.tokenizer import Tokenizer


def encode(path: str, text: str) -> list[int]:
    """With the tokenizer of the checkpoint at `path`, whatever its format. Raises CheckpointError."""
    found = open_text(path, "auto")
    if isinstance(found, GgufHeader):
        tokenizer = Tokenizer.from_header(found)
    else:
        tokenizer = Tokenizer.from_files(read_text_files(found))
    return tokenizer.encode(text, add_special=True, parse_special=False)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(encode(sys.argv[1], sys.stdin.read())) + "\n")
