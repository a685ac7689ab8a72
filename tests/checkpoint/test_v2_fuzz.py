"""Whatever the bytes are, opening them is an answer or a CheckpointError."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.v2_files import copy_v2, edited, read_parts, rich_geometry

from halogend.checkpoint.errors import ALL_CODES, CheckpointError
from halogend.checkpoint.v2.header import MAGIC
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.shards import ranges, sizes
from halogend.checkpoint.v2.verify import verify

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_v2(tmp_path / "m.hgn2", rich_geometry(), "int4")


def look(path: Path) -> None:
    """All that is done with a file of which nothing is known."""
    refusal = None
    try:
        file = open_v2(path)
        for name in file.text_names:
            file.text(name)
        for size in sizes(file.metadata.entries):
            for entry in file.metadata.entries:
                ranges(entry, size - 1, size)
        verify(file, threads=1)
    except CheckpointError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in ALL_CODES
        assert "\n" not in refusal.message


@FEW
@given(raw=st.binary(max_size=9000), has_magic=st.booleans())
def test_random_bytes(tmp_path: Path, raw: bytes, *, has_magic: bool):
    path = tmp_path / "m"
    path.write_bytes(MAGIC * has_magic + raw)
    look(path)


@FEW
@given(edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=9)), min_size=1, max_size=3))
def test_random_edits_of_the_bytes(path: Path, edits: list[tuple[int, bytes]]):
    raw = bytearray(path.read_bytes())
    for position, piece in edits:
        begin = position % len(raw)
        raw[begin : begin + len(piece)] = piece
    path.with_name("edited").write_bytes(raw)
    look(path.with_name("edited"))


@FEW
@given(name=st.sampled_from(["version", "minimum", "flags", "file_bytes", "offset", "length", "start"]), data=st.data())
def test_random_headers_that_are_whole(path: Path, name: str, data: st.DataObject):
    top = (1 << 32 if name in ("version", "minimum") else 1 << 64) - 1
    value = data.draw(st.integers(0, top) | st.integers(0, 3) | st.sampled_from([4096, 8192, top]))
    raw = path.read_bytes()
    look(edited(path, header={name: value}))
    path.write_bytes(raw)


@FEW
@given(place=st.integers(0, 1 << 30), value=VALUES, is_removed=st.booleans())
@example(place=3, value=float("inf"), is_removed=False)
@example(place=5, value=1e999, is_removed=False)
def test_random_edits_of_the_metadata_under_a_digest_that_fits(path: Path, place: int, value: Any, *, is_removed: bool):
    raw = path.read_bytes()
    document = json.loads(read_parts(raw)[1])
    places = list(_places(document))
    holder, key = places[place % len(places)]
    if is_removed:
        del holder[key]
    else:
        holder[key] = value
    with contextlib.suppress(UnicodeEncodeError):  # half a surrogate pair: no file can hold it unescaped
        look(edited(path, metadata=json.dumps(document).encode()))
    path.write_bytes(raw)


@FEW
@given(raw=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
@example(raw=b"[" * 100_000)
@example(raw=b'{"model":' * 5000 + b"1" + b"}" * 5000)
@example(raw=b'{"tensors":' + b"9" * 5000 + b"}")
def test_metadata_that_is_anything(path: Path, raw: bytes):
    before = path.read_bytes()
    look(edited(path, metadata=raw))
    path.write_bytes(before)


@pytest.mark.parametrize("depth", [2, 300, 800])
def test_ropes_that_go_on_beyond_each_other_for_ever(path: Path, depth: int):
    def deep(document: dict[str, Any]) -> None:
        rope = document["model"]["ropes"][0]
        for _ in range(depth):
            rope = {**rope, "beyond": rope}
        document["model"]["ropes"] = [rope]

    with pytest.raises(CheckpointError):
        open_v2(edited(path, metadata=deep))


def _places(part: Any) -> Any:
    """Every (holder, key) of a document."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        yield part, key
        if isinstance(value, dict | list):
            yield from _places(value)
