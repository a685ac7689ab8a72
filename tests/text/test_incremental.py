"""Incremental text against a naive model that decodes everything each time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from halogend.text.incremental import TextStream


def run(pieces: Sequence[bytes], stops: Sequence[str]) -> tuple[list[str], bool, int]:
    """Deltas (the last one from finish), whether it stopped, tokens used."""
    stream = TextStream(lambda token: pieces[token], stops)
    deltas = []
    for token in range(len(pieces)):
        deltas.append(stream.push(token))
        if stream.stopped:
            break
    used = len(deltas)
    deltas.append(stream.finish())
    return deltas, stream.stopped, used


def naive(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text up to the stop string that is complete first; the longest of several."""
    for end in range(1, len(text) + 1):
        found = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(found)], True
    return text, False


def cut(data: bytes, borders: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(border % (len(data) + 1) for border in borders)})
    return [data[a:b] for a, b in itertools.pairwise(places)] or [b""]


TEXTS = st.text(alphabet=st.sampled_from("abc\n é漢😀"), max_size=60)
BORDERS = st.lists(st.integers(0, 10_000), max_size=40)
STOPS = st.lists(st.text(alphabet=st.sampled_from("abc\né😀"), min_size=1, max_size=6), max_size=4)


@given(TEXTS, BORDERS, STOPS)
def test_deltas_add_up_to_the_text_before_the_first_stop_string(text: str, borders: list[int], stops: list[str]):
    deltas, stopped, _ = run(cut(text.encode(), borders), stops)
    assert ("".join(deltas), stopped) == naive(text, stops)


@given(st.binary(max_size=60), BORDERS)
def test_invalid_bytes_decode_as_the_whole_does(data: bytes, borders: list[int]):
    deltas, _, _ = run(cut(data, borders), [])
    assert "".join(deltas) == data.decode(errors="replace")


@given(TEXTS, BORDERS, STOPS)
def test_nothing_is_held_back_without_need(text: str, borders: list[int], stops: list[str]):
    pieces = cut(text.encode(), borders)
    stream = TextStream(lambda token: pieces[token], stops)
    shown, came = "", b""
    for token, piece in enumerate(pieces):
        shown += stream.push(token)
        came += piece
        if stream.stopped:
            return
        complete = came.decode(errors="ignore")
        held = complete[len(shown) :]
        assert complete.startswith(shown)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_character_is_shown_when_its_last_byte_is_there():
    pieces = ["😀".encode()[index : index + 1] for index in range(4)]
    assert run(pieces, [])[0] == ["", "", "", "😀", ""]


def test_an_incomplete_character_at_the_end_is_replaced():
    assert run(["é".encode()[:1]], [])[0] == ["", "\ufffd"]


def test_a_stop_string_across_tokens_hides_what_follows_and_counts_no_more():
    deltas, stopped, used = run([b"one E", b"N", b"D two", b" three"], ["END"])
    assert deltas == ["one ", "", "", ""]
    assert stopped
    assert used == 3


def test_a_stop_string_that_does_not_come_is_shown_at_the_end():
    assert run([b"a EN"], ["END"])[0] == ["a ", "EN"]


def test_a_restarted_match_is_found():
    deltas, stopped, _ = run([b"aa", b"b", b"aab", b"c"], ["aabaabc"])
    assert "".join(deltas) == ""
    assert stopped
    deltas, stopped, _ = run([b"aabaabaabc!"], ["aabaabc"])
    assert "".join(deltas) == "aab"
    assert stopped


def test_the_cost_of_a_token_does_not_grow_with_the_answer():
    """Counts work, not time: bytes handed to the decoder are the token's own."""
    lengths: list[int] = []

    pieces = [b" word", "é".encode(), b"\n"] * 3000

    def piece(token: int) -> bytes:
        lengths.append(len(pieces[token]))
        return pieces[token]

    stream = TextStream(piece, ["never seen", "\n\n\n\n"])
    held = []
    for token in range(len(pieces)):
        stream.push(token)
        held.append(len(stream._held))
    assert len(lengths) == len(pieces)  # each token is asked for once
    assert max(held) < 10  # and what is kept is bounded by the longest stop string
