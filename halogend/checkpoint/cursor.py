"""A bounded reader over the first part of a file.

Every read is checked against the file's size before anything is allocated, so that a hostile
count or length costs nothing. The bytes are read, not mapped.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from halogend.checkpoint.errors import KEY_INVALID, TRUNCATED, CheckpointError
from halogend.checkpoint.files import unreadable

MAX_HEADER_BYTES = 256 << 20  # 40 times what a vocabulary of 262k strings takes
_FIRST_READ_BYTES = 1 << 20
_U64 = struct.Struct("<Q")


class Cursor:
    """Reads forward from `start`. `data` holds the file's bytes from `start` up to what was needed so
    far; positions are relative to it. Nothing at or behind byte `end` is looked at. Single writer: the parse
    that owns it."""

    def __init__(self, file: BinaryIO, path: Path, start: int = 0, end: int | None = None) -> None:
        self.path = path
        size = os.fstat(file.fileno()).st_size
        self.file_size = size if end is None else min(size, end)
        self.data = bytearray()
        self.position = 0
        self._file = file
        self._start = start

    @property
    def remaining(self) -> int:
        """Bytes of the file after the position."""
        return self.file_size - self._start - self.position

    def broken(self, what: str) -> CheckpointError:
        return CheckpointError(KEY_INVALID, f"{self.path}: {what} (at byte {self._start + self.position})")

    def truncated(self, what: str) -> CheckpointError:
        return CheckpointError(TRUNCATED, f"{self.path}: {what} (at byte {self._start + self.position})")

    def require(self, count: int, what: str) -> None:
        """Makes `count` bytes after the position present in `data`."""
        end = self.position + count
        if end <= len(self.data):
            return
        if count > self.remaining:
            raise self.truncated(f"the file ends inside {what}: {count} bytes wanted, {max(self.remaining, 0)} left")
        if end > MAX_HEADER_BYTES:
            raise self.broken(f"{what} reaches past the largest header accepted, {MAX_HEADER_BYTES} bytes")
        target = max(end, min(2 * len(self.data), MAX_HEADER_BYTES), _FIRST_READ_BYTES)
        try:
            while len(self.data) < target:
                piece = os.pread(self._file.fileno(), target - len(self.data), self._start + len(self.data))
                if not piece:
                    break
                self.data += piece
        except OSError as error:
            raise unreadable(self.path, error) from error
        if len(self.data) < end:  # truncated by somebody since its size was taken
            raise self.truncated(f"the file ends inside {what}")

    def unpack(self, layout: struct.Struct, what: str) -> tuple[int | float | bool, ...]:
        self.require(layout.size, what)
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def u32(self, what: str) -> int:
        self.require(4, what)
        self.position += 4
        return int.from_bytes(self.data[self.position - 4 : self.position], "little")

    def u64(self, what: str) -> int:
        self.require(8, what)
        self.position += 8
        return int.from_bytes(self.data[self.position - 8 : self.position], "little")

    def text(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        self.require(length, what)
        self.position += length
        try:
            return self.data[self.position - length : self.position].decode()
        except UnicodeDecodeError as error:
            raise self.broken(f"{what} is not UTF-8") from error

    def skip(self, count: int, what: str) -> None:
        self.require(count, what)
        self.position += count

    def skip_strings(self, count: int, what: str) -> None:
        """Walks over `count` length-prefixed strings without building one."""
        position, done, unpack_from = self.position, 0, _U64.unpack_from
        data = self.data
        while True:
            known = len(data) - 8
            while done < count and position <= known:
                position += 8 + unpack_from(data, position)[0]
                done += 1
            if done == count:
                break
            # The next length lies outside what was read so far, or past the end.
            self.require(position + 8 - self.position, what)
        self.require(position - self.position, what)
        self.position = position

    def strings(self, count: int, what: str) -> list[str]:
        """`count` length-prefixed strings."""
        start = self.position
        self.skip_strings(count, what)
        data, unpack_from = bytes(self.data[start : self.position]), _U64.unpack_from
        texts, position = [], 0
        try:
            for _ in range(count):
                end = position + 8 + unpack_from(data, position)[0]
                texts.append(data[position + 8 : end].decode())
                position = end
        except UnicodeDecodeError as error:
            raise self.broken(f"{what} holds a string that is not UTF-8") from error
        return texts
