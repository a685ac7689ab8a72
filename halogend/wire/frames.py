"""Length-prefixed frames: a little-endian u32, then that many bytes of msgpack.

One decoder per stream; it keeps what an incomplete frame has brought so far.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from halogend.wire.messages import AnyMessage

MAX_FRAME_BYTES = 64 << 20  # a 10 MiB body as token ids fits several times over
_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


class WireError(Exception):
    """The peer sent what is not a frame of this protocol; the stream cannot be trusted again."""


def encode(message: AnyMessage) -> bytes:
    """One whole frame. Raises WireError when the message is larger than MAX_FRAME_BYTES."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(f"a {type(message).__name__} of {len(body)} bytes is over the frame limit {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Bytes in, messages out. Single writer: the channel that owns it."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[AnyMessage]:
        """Every message completed by `data`, in order. Raises WireError on a bad frame."""
        self._held += data
        start = 0
        try:
            while (end := self._end_of_frame(start)) is not None:
                body = memoryview(self._held)[start + _LENGTH.size : end]
                try:
                    message = _decoder.decode(body)
                except msgspec.MsgspecError as error:
                    raise WireError(f"a frame of {len(body)} bytes is no message: {error}") from error
                finally:
                    body.release()
                start = end
                yield message
        finally:
            del self._held[:start]

    def _end_of_frame(self, start: int) -> int | None:
        if len(self._held) - start < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._held, start)
        if length > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {length} bytes is over the limit {MAX_FRAME_BYTES}")
        end = start + _LENGTH.size + length
        return end if len(self._held) >= end else None
