"""GGML's own conversions, as the library of the `xllamacpp` wheel exports them."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np


def ggml_quantise(number: int, values: np.ndarray, bytes_wanted: int) -> np.ndarray:
    """float32 [rows, columns] -> uint8 [bytes_wanted], as type `number`; every column counts the same."""
    rows, columns = values.shape
    values = np.ascontiguousarray(values, np.float32)
    weights = np.ones(columns, np.float32)
    out = np.zeros(bytes_wanted, np.uint8)
    pointer = ctypes.POINTER(ctypes.c_float)
    written = _library().ggml_quantize_chunk(
        number, values.ctypes.data_as(pointer), out.ctypes.data, 0, rows, columns, weights.ctypes.data_as(pointer)
    )
    if written != bytes_wanted:
        raise RuntimeError(f"ggml wrote {written} bytes of type {number}, not {bytes_wanted}")
    return out


def ggml_dequantise(name: str, blocks: np.ndarray, elements: int) -> np.ndarray:
    """uint8 blocks of the type `name` (as in `dequantize_row_NAME`) -> float32 [elements]."""
    blocks = np.ascontiguousarray(blocks)
    out = np.empty(elements, np.float32)
    convert = getattr(_library(), f"dequantize_row_{name}")
    convert.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    convert.restype = None
    convert(blocks.ctypes.data, out.ctypes.data, elements)
    return out


@cache
def _library() -> ctypes.CDLL:
    spec = find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise RuntimeError("the xllamacpp package is missing")
    library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("xllamacpp*.so"))))
    floats = ctypes.POINTER(ctypes.c_float)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = (
        ctypes.c_int,
        floats,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        floats,
    )
    return library
