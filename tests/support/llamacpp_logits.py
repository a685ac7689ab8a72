"""Full logits from llama.cpp, through the C interface that the wheel's library exports.

Its parameter structs have no stable layout, so they are taken as bytes from the library's own
defaults, and the few fields set here are first checked to hold the defaults that their places
should hold.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

_FLASH_OFF, _TYPE_F32 = 0, 0
# 32-bit words of llama_context_params: word -> its default.
_N_CTX, _N_BATCH, _N_UBATCH, _OUTPUTS, _THREADS, _THREADS_BATCH, _FLASH, _TYPE_K, _TYPE_V = 0, 1, 2, 6, 7, 8, 13, 26, 27
_DEFAULTS = {0: 512, 1: 2048, 2: 512, 10: -1, 11: -1, 12: -1, _FLASH: -1, _TYPE_K: 1, _TYPE_V: 1}


class _Opaque(ctypes.Structure):
    _fields_ = (("words", ctypes.c_int32 * 256),)


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


def llama_logits(
    model: Path, tokens: Sequence[int], vocab: int, *, exact: bool, threads: int = 2, chunk: int = 128
) -> np.ndarray:
    """float32 [len(tokens), vocab]: logits after each token. `exact` switches flash attention off and
    keeps the KV cache in float32; otherwise everything is as the library has it by default."""
    library = _library()
    library.llama_backend_init()
    handle = library.llama_model_load_from_file(str(model).encode(), library.llama_model_default_params())
    if not handle:
        raise RuntimeError(f"llama.cpp cannot load {model}")
    params = library.llama_context_default_params()
    for word, default in _DEFAULTS.items():
        if params.words[word] != default:
            raise RuntimeError(f"llama_context_params has another layout: word {word} is {params.words[word]}")
    params.words[_N_CTX] = -(-len(tokens) // 256) * 256
    params.words[_N_BATCH] = params.words[_N_UBATCH] = params.words[_OUTPUTS] = chunk
    params.words[_THREADS] = params.words[_THREADS_BATCH] = threads
    if exact:
        params.words[_FLASH], params.words[_TYPE_K], params.words[_TYPE_V] = _FLASH_OFF, _TYPE_F32, _TYPE_F32
    context = library.llama_init_from_model(handle, params)
    if not context:
        raise RuntimeError("llama.cpp cannot make a context")
    try:
        parts = [
            _decode(library, context, tokens[first : first + chunk], first, vocab)
            for first in range(0, len(tokens), chunk)
        ]
        return np.concatenate(parts)
    finally:
        library.llama_free(context)
        library.llama_model_free(handle)


def _decode(library: ctypes.CDLL, context: int, tokens: Sequence[int], first: int, vocab: int) -> np.ndarray:
    count = len(tokens)
    batch = library.llama_batch_init(count, 0, 1)
    try:
        batch.n_tokens = count
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = first + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 1
        if status := library.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode returned {status}")
        rows = library.llama_get_logits(context)
        return np.ctypeslib.as_array(rows, (count, vocab)).copy()
    finally:
        library.llama_batch_free(batch)


def _library() -> ctypes.CDLL:
    spec = find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise RuntimeError("the xllamacpp package is missing")
    library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("xllamacpp*.so"))))
    library.llama_model_default_params.restype = _Opaque
    library.llama_context_default_params.restype = _Opaque
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_load_from_file.argtypes = (ctypes.c_char_p, _Opaque)
    library.llama_init_from_model.restype = ctypes.c_void_p
    library.llama_init_from_model.argtypes = (ctypes.c_void_p, _Opaque)
    library.llama_batch_init.restype = _Batch
    library.llama_batch_init.argtypes = (ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)
    library.llama_batch_free.argtypes = (_Batch,)
    library.llama_decode.argtypes = (ctypes.c_void_p, _Batch)
    library.llama_get_logits.argtypes = (ctypes.c_void_p,)
    library.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
    library.llama_free.argtypes = (ctypes.c_void_p,)
    library.llama_model_free.argtypes = (ctypes.c_void_p,)
    library.llama_log_set(_SILENT, None)
    return library


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _SILENT(_level: int, _text: bytes, _data: int) -> None:  # noqa: N802 (a constant that happens to be a function)
    """Takes llama.cpp's log lines and drops them."""
