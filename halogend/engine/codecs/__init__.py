"""From a stored matrix's bytes to numbers: one decoder for each encoding of `checkpoint.stored`.

Owns the arithmetic and the order of packed codes. Must never know a file, a name of a model's
weight, a geometry or a kernel: bytes come from a ByteSource, numbers go into the caller's tensor.
"""

from halogend.engine.codecs.decode import decode_rows, stored_rows
from halogend.engine.codecs.source import ByteSource

__all__ = ["ByteSource", "decode_rows", "stored_rows"]
