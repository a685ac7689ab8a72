"""`messages` of a body to the turns that a template gets."""

from __future__ import annotations

from typing import Any

import pytest

from halogend.api.conversation import MAX_PARTS, conversation
from halogend.api.schemas import ChatBody, read
from halogend.control.requests import RequestError


def turns(*messages: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    body = read(ChatBody, {"model": "m", "messages": list(messages)}, {})
    return [(turn.role, turn.content, turn.name) for turn in conversation(body.messages).messages]


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def test_consecutive_assistant_messages_are_one_turn_p10():
    """As two turns they would show the model an answer that breaks off; nothing is put between them."""
    assert turns(
        says("assistant", "Once upon"),
        says("assistant", [{"type": "text", "text": " a"}]),
        says("user", "go on"),
        says("assistant", " time"),
        says("assistant", ""),
        says("assistant", " there"),
    ) == [("assistant", "Once upon a", None), ("user", "go on", None), ("assistant", " time there", None)]


def test_only_what_one_assistant_said_is_merged():
    apart = [
        says("user", "a"),
        says("user", "b"),
        says("assistant", "c", name="one"),
        says("assistant", "d", name="two"),
        says("assistant", "e"),
        says("system", "f"),
        says("developer", "g"),
    ]
    assert [content for _, content, _ in turns(*apart)] == list("abcdefg")
    assert turns(says("assistant", "c", name="one"), says("assistant", "d", name="one")) == [("assistant", "cd", "one")]


def test_a_fault_is_named_by_its_place_in_the_body():
    with pytest.raises(RequestError) as refused:
        turns(says("assistant", "a"), says("assistant", "b"), says("assistant", None))
    assert refused.value.param == "messages[2].content"


def test_a_name_has_a_limit():
    assert turns(says("user", "hi", name="n" * 64)) == [("user", "hi", "n" * 64)]
    with pytest.raises(RequestError, match="64 characters") as refused:
        turns(says("user", "hi", name="n" * 65))
    assert (refused.value.code, refused.value.param) == ("invalid_value", "messages[0].name")


def test_the_parts_of_a_conversation_have_a_limit():
    part = {"type": "text", "text": "x"}
    assert len(turns(says("user", [part] * MAX_PARTS))[0][1]) == MAX_PARTS
    with pytest.raises(RequestError, match="parts") as refused:
        turns(says("user", [part] * MAX_PARTS), says("user", [part]))
    assert (refused.value.code, refused.value.param) == ("invalid_value", "messages")
