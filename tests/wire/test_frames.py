"""Frames: whatever the pieces a stream arrives in, the messages come out whole and in order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.wire.frames import MAX_FRAME_BYTES, FrameReader, WireError, encode
from halogend.wire.messages import (
    Abort,
    Accepted,
    Delta,
    Ended,
    Failure,
    Finished,
    Generate,
    Hello,
    Sampled,
    Sampling,
    StepOutput,
    Stop,
    Submit,
    TextEvents,
    TextPrompt,
    TokenPrompt,
    Usage,
)

SAMPLING = Sampling(
    temperature=0.5,
    top_p=1.0,
    top_k=3,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    seed=2**63 - 1,
)
MESSAGES = [
    Hello(version=1, role="text", pid=7),
    Submit(id=1, prompt=TextPrompt(text="Grüße 🦊"), sampling=SAMPLING, max_tokens=None, stop=("\n",)),
    Submit(id=2, prompt=TokenPrompt(ids=(1, 2, 3)), sampling=SAMPLING, max_tokens=5),
    Abort(id=1),
    TextEvents(
        events=(
            Accepted(id=2, prompt_tokens=3),
            Delta(id=2, text="a", tokens=1),
            Finished(id=2, reason="stop", usage=Usage(prompt_tokens=3, completion_tokens=1)),
        )
    ),
    Generate(id=3, prompt_ids=(5,), max_tokens=1, sampling=SAMPLING, stop_ids=()),
    StepOutput(
        sampled=(Sampled(id=3, token=9),),
        ended=(Ended(id=3, reason="error", failure=Failure(code="x", message="y", param="z")),),
    ),
    Stop(),
]


@given(st.lists(st.sampled_from(MESSAGES), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_messages_come_out_whole_whatever_the_pieces(messages, sizes):
    stream = b"".join(encode(message) for message in messages)
    reader, out, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        out += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert out == messages


@given(st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_message_are_refused(body):
    frame = len(body).to_bytes(4, "little") + body
    with pytest.raises(WireError):
        list(FrameReader().feed(frame))


def test_a_length_over_the_limit_is_refused_before_its_bytes_arrive():
    with pytest.raises(WireError, match="over the limit"):
        list(FrameReader().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))


def test_an_unknown_tag_is_refused():
    body = msgspec.msgpack.encode({"type": "Exec", "code": "1"})
    with pytest.raises(WireError):
        list(FrameReader().feed(len(body).to_bytes(4, "little") + body))
