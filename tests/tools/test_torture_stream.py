"""A streamed answer's body, however its bytes are cut on the way."""

import asyncio

import pytest
from torture.stream import Body

LINES = [b"data: one", b"", b"data: two", b"last"]
TEXT = b"data: one\n\ndata: two\r\nlast"
CHUNKED = {"transfer-encoding": "chunked"}


def chunks(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def read(headers, pieces):
    """The lines and the body, fed piece by piece."""
    lines = []
    body = Body(headers, lines.append)
    for piece in pieces:
        body.feed(piece)
    return lines, body


@pytest.mark.parametrize(
    ("headers", "data"),
    [(CHUNKED, chunks(TEXT[:3], TEXT[3:12], TEXT[12:])), ({"content-length": str(len(TEXT))}, TEXT)],
)
def test_lines_are_the_same_wherever_the_bytes_are_cut(headers, data):
    for size in range(1, len(data) + 1):
        lines, body = read(headers, [data[at : at + size] for at in range(0, len(data), size)])
        assert (lines, body.is_whole) == (LINES, True)
        body.end()


def test_a_line_is_handed_out_before_the_body_is_whole():
    lines, body = read(CHUNKED, [chunks(b"one\n")[:-5]])
    assert (lines, body.is_whole) == ([b"one"], False)


def test_a_body_without_length_ends_with_its_connection():
    lines, body = read({}, [TEXT])
    assert (lines, body.is_whole) == (LINES[:-1], False)
    body.end()
    assert (lines, body.is_whole) == (LINES, True)


@pytest.mark.parametrize(("headers", "data"), [(CHUNKED, chunks(TEXT)[:-1]), ({"content-length": "99"}, TEXT)])
def test_a_body_that_breaks_off_is_not_whole(headers, data):
    _, body = read(headers, [data])
    with pytest.raises(asyncio.IncompleteReadError):
        body.end()


def test_what_are_no_chunks_is_an_error():
    with pytest.raises(ValueError, match="invalid literal"):
        read(CHUNKED, [b"data: one\r\n"])


def test_an_empty_body_is_whole_at_once():
    assert Body({"content-length": "0"}, print).is_whole
