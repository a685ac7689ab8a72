"""llama.cpp as an oracle of tokenisation, through the C API of its library, in a child process.

    found = llama_vocabularies([path, ...], texts)
    found[path].ids(text, add_special=True, parse_special=False)

Run as a program it is that child.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIMIT_S = 100.0
_WAYS = ((False, False), (True, False), (False, True), (True, True))  # add_special, parse_special


@dataclass(frozen=True)
class LlamaVocabulary:
    """`encoded` are the ids of each text, for each of the ways to encode it."""

    encoded: Mapping[str, Sequence[Sequence[int]]]
    end_ids: frozenset[int]
    pieces: tuple[bytes, ...]

    def ids(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return list(self.encoded[text][_WAYS.index((add_special, parse_special))])


def llama_vocabularies(paths: Sequence[Path], texts: Sequence[str]) -> dict[Path, LlamaVocabulary]:
    """Raises RuntimeError with llama.cpp's last words for a file that it refuses."""
    request = json.dumps({"paths": [str(path) for path in paths], "texts": list(texts)})
    child = subprocess.run(
        [sys.executable, __file__], input=request.encode(), capture_output=True, timeout=_LIMIT_S, check=False
    )
    if child.returncode:
        raise RuntimeError(f"llama.cpp ended with {child.returncode}: {child.stderr[-2000:]!r}")
    answers = json.loads(child.stdout.splitlines()[-1])
    return {
        path: LlamaVocabulary(
            encoded=dict(zip(texts, answer["ids"], strict=True)),
            end_ids=frozenset(answer["ends"]),
            pieces=tuple(bytes.fromhex(piece) for piece in answer["pieces"]),
        )
        for path, answer in zip(paths, answers, strict=True)
    }


class _ModelParams(ctypes.Structure):
    """Larger than llama_model_params of any version; it travels by value, so its tail is ignored."""

    _fields_ = (("bytes", ctypes.c_char * 1024),)


def _library() -> ctypes.CDLL:
    import xllamacpp

    library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("*.so"))))
    library.llama_model_default_params.restype = _ModelParams
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _ModelParams]
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_free.argtypes = [ctypes.c_void_p]
    library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    library.llama_model_get_vocab.restype = ctypes.c_void_p
    library.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
    library.llama_vocab_is_eog.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.llama_vocab_is_eog.restype = ctypes.c_bool
    integers = ctypes.POINTER(ctypes.c_int32)
    flags = [ctypes.c_bool, ctypes.c_bool]
    size = ctypes.c_int32
    library.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, size, integers, size, *flags]
    library.llama_token_to_piece.argtypes = [ctypes.c_void_p, size, ctypes.c_char_p, size, size, ctypes.c_bool]
    return library


def _answer(library: ctypes.CDLL, path: str, texts: list[str]) -> dict[str, Any]:
    model = library.llama_model_load_from_file(path.encode(), library.llama_model_default_params())
    if not model:
        raise RuntimeError(f"{path} is refused")
    vocab = library.llama_model_get_vocab(model)
    count = library.llama_vocab_n_tokens(vocab)
    ids = []
    for text in texts:
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 16))()
        found = []
        for add, parse in _WAYS:
            length = library.llama_tokenize(vocab, data, len(data), room, len(room), add, parse)
            found.append(list(room[:length]))
        ids.append(found)
    buffer = ctypes.create_string_buffer(4096)
    pieces = []
    for token in range(count):
        length = library.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
        pieces.append(buffer.raw[: max(length, 0)].hex())
    ends = [token for token in range(count) if library.llama_vocab_is_eog(vocab, token)]
    library.llama_model_free(model)
    return {"ids": ids, "ends": ends, "pieces": pieces}


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    loaded = _library()
    print(json.dumps([_answer(loaded, path, wanted["texts"]) for path in wanted["paths"]]), flush=True)
