"""Frames: whatever the pieces a stream arrives in, the messages come out whole and in order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.wire.control import Hello, PrepareEngine, Progress, StartFailed, Stop
from halogend.wire.failure import Failure
from halogend.wire.frames import MAX_FRAME_BYTES, FrameReader, WireError, encode
from halogend.wire.policy import Caller, EnginePolicy, SessionClass
from halogend.wire.requests import (
    Abort,
    Accepted,
    Delta,
    Ended,
    Finished,
    Generate,
    Sampled,
    Sampling,
    StepOutput,
    Submit,
    TextEvents,
    TextPrompt,
    TokenPrompt,
    Usage,
)
from halogend.wire.specs import EngineLimits

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
CALLER = Caller(key="team-a", weight=2.0, klass="gold", session="s-1")
POLICY = EnginePolicy(
    max_queue_tokens=9,
    eviction="priority_lru",
    classes=(SessionClass(name="gold", priority=10, pin_quota=0.2, ttl_s=900.0),),
    autoscale=False,
)
LIMITS = EngineLimits(
    max_model_len=64,
    max_batch=2,
    max_queue=4,
    queue_timeout_s=1.0,
    request_timeout_s=0.0,
    prefill_chunk_tokens=0,
    pool_bytes=1 << 20,
    policy=POLICY,
)
MESSAGES = [
    Hello(version=1, role="text", pid=7),
    Submit(id=1, prompt=TextPrompt(text="Grüße 🦊"), sampling=SAMPLING, max_tokens=None, stop=("\n",)),
    Submit(id=2, prompt=TokenPrompt(ids=(1, 2, 3)), sampling=SAMPLING, max_tokens=5),
    Submit(id=4, prompt=TextPrompt(text="a"), sampling=SAMPLING, max_tokens=None, caller=CALLER),
    Abort(id=1),
    TextEvents(
        events=(
            Accepted(id=2, prompt_tokens=3),
            Delta(id=2, text="a", tokens=1),
            Finished(id=2, reason="stop", usage=Usage(prompt_tokens=3, completion_tokens=1)),
        )
    ),
    Generate(id=3, prompt_ids=(5,), max_tokens=1, sampling=SAMPLING, stop_ids=(), caller=CALLER),
    PrepareEngine(update=7, limits=LIMITS),
    StepOutput(
        sampled=(Sampled(id=3, token=9),),
        ended=(Ended(id=3, reason="error", failure=Failure(code="x", message="y", param="z")),),
        reused=((3, 16),),
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


EARLY = {
    b"\x84\xa4type\xa5Hello\xa7version\x05\xa4role\xa6engine\xa3pid\x07": Hello(version=5, role="engine", pid=7),
    b"\x86\xa4type\xa8Progress\xa5stage\xa9importing\xa7counter\x01\xa4busy\xc3\xa4done\x00\xa5total\x00": Progress(
        stage="importing", counter=1, busy=True
    ),
    b"\x82\xa4type\xabStartFailed\xa7failure\x83\xa4code\xa1x\xa7message\xa1y\xa5param\xc0": StartFailed(
        failure=Failure(code="x", message="y")
    ),
}


@pytest.mark.parametrize(("body", "message"), EARLY.items(), ids=[type(each).__name__ for each in EARLY.values()])
def test_what_may_come_before_the_version_is_known_is_of_one_form_for_ever(body, message):
    """As version 5 wrote it, and with fields that a later version may add. A newer program than the daemon's, or an
    older one, says Hello late: what it says before is read all the same."""
    assert list(FrameReader().feed(len(body).to_bytes(4, "little") + body)) == [message]
    more = msgspec.msgpack.encode({**msgspec.msgpack.decode(body), "later": [1]})
    assert list(FrameReader().feed(len(more).to_bytes(4, "little") + more)) == [message]


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
