"""Control tokens in texts: found where they may be, kept out where they may not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.text import control_tokens
from halogend.text.control_tokens import ControlTokens, Marking

IDS = {"<|im_start|>": 1, "<|im_end|>": 2, "<s>": 3, "</s>": 4, "<a>": 5, "<a><b>": 6, "§": 7}
CONTROL = ControlTokens(IDS)
PIECES = st.lists(
    st.sampled_from(
        [*IDS, "<", "|", ">", "<|", "|>", "im_end", "s", "a", "x", " ", "\n", "\ue000", "<|im_", "end|>", "s>", "/"]
    ),
    max_size=8,
).map("".join)


def joined(parts: list[str | int]) -> str:
    names = {token: text for text, token in IDS.items()}
    return "".join(part if isinstance(part, str) else names[part] for part in parts)


def naive(text: str) -> list[str | int]:
    parts: list[str | int] = []
    index, kept = 0, ""
    while index < len(text):
        found = [name for name in IDS if text.startswith(name, index)]
        if found:
            best = max(found, key=len)
            parts += [kept, IDS[best]] if kept else [IDS[best]]
            kept = ""
            index += len(best)
        else:
            kept += text[index]
            index += 1
    return [*parts, kept] if kept else parts


@given(PIECES)
def test_a_text_is_cut_at_the_leftmost_longest_control_tokens(text: str):
    parts = CONTROL.split(text)
    assert parts == naive(text)
    assert joined(parts) == text


@given(
    st.lists(PIECES, min_size=1, max_size=3), st.sampled_from([str, str.strip]), st.sampled_from(["", "<", "<|", "\n"])
)
def test_a_message_never_yields_a_control_token_and_comes_back_whole(contents: list[str], handle: object, before: str):
    """As templates use messages: whole or trimmed, with text before and after."""
    assert callable(handle)
    marking = Marking(CONTROL, contents)
    after = {"<": ">", "<|": "|>"}.get(before, "")
    rendered = "".join(
        f"<|im_start|>user\n{before}{handle(marking.mark(text))}{after}\n<|im_end|>" for text in contents
    )
    parts = CONTROL.split(rendered)
    assert [part for part in parts if isinstance(part, int)] == [1, 2] * len(contents)
    between = [marking.restore(part) for part in parts if isinstance(part, str)]
    assert between == [f"user\n{before}{handle(text)}{after}\n" for text in contents]


@given(PIECES)
def test_marking_keeps_the_length_and_what_is_white_space(text: str):
    marked = Marking(CONTROL, [text]).mark(text)
    assert len(marked) == len(text)
    assert [char.isspace() for char in marked] == [char.isspace() for char in text]


def test_most_texts_are_not_touched():
    for text in ("", "hello", "if a < b and c > d:", "<div>|</div>", "a\ue000b"):
        assert Marking(CONTROL, [text]).mark(text) == text


def test_private_use_characters_of_the_conversation_are_not_taken():
    text = "\ue000\ue001 <|im_end|>"
    marking = Marking(CONTROL, [text])
    marked = marking.mark(text)
    assert marked != text
    assert marked.startswith("\ue000\ue001 ")
    assert marking.restore(marked) == text


def test_a_vocabulary_without_control_tokens():
    none = ControlTokens({})
    assert none.split("<s>") == ["<s>"]
    assert none.split("") == []
    assert Marking(none, ["<s>"]).mark("<s>") == "<s>"


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are searched in very short stretches, so that tokens lie across their ends."""
    monkeypatch.setattr(control_tokens, "_STRETCH_CHARS", 3)


def test_tokens_across_stretches_are_found(stretches: None):
    text = "<|im_sta<|im_start|>xx<a><b><a>§§<|im_end|></s><s><" * 3
    assert CONTROL.split(text) == naive(text)
    begun = {index for index in range(len(text)) if text.startswith(tuple(IDS), index)}
    marks = CONTROL.spelt_in(text)
    assert begun <= marks
    assert marks - begun <= {len(text) - 1}  # the last "<" may begin one


def test_tokens_that_lie_in_others(stretches: None):
    nested = ControlTokens({"abcab": 1, "ab": 2})
    assert nested.split("xabcabxab") == ["x", 1, "x", 2]
    assert {1, 4, 7} <= nested.spelt_in("xabcabxab")


def test_tokens_that_begin_alike_over_and_over():
    """Far more branchings than a pattern's compiler would follow."""
    deep = ControlTokens({"a" * length: length for length in range(1, 601)})
    assert deep.split("b" + "a" * 550 + "b" + "a" * 700) == ["b", 550, "b", 600, 100]


@pytest.mark.parametrize("text", ["<", "<|im_end", "<|im_end|>", "im_end|>"])
def test_hostile_texts_cost_no_more_than_others(text: str):
    """Trying each length of a token at each place takes over twenty seconds for the first."""
    text *= 10_000_000 // len(text)
    began = time.thread_time()
    marked = Marking(CONTROL, [text]).mark(text)
    CONTROL.split(text)
    assert time.thread_time() - began < 8
    assert CONTROL.split(marked) == [marked]
