"""The text process for real: a child over socketpairs, a fake engine at the other end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gguf_files import bpe_tokenizer, spm_tokenizer, write_gguf
from support.text_process import WIDE, TextHarness, chat, text, text_process

from halogend.wire.control import (
    Commit,
    Discard,
    Hello,
    Prepared,
    PrepareText,
    Progress,
    StartFailed,
    StartText,
    Stop,
    TextReady,
)
from halogend.wire.requests import Abort, Accepted, Delta, Ended, Finished, TokenPrompt, Usage
from halogend.wire.specs import Limits, TextSpec

Model = Callable[..., Path]
END = 2
LOOPS = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
PICKY = (
    "{% if 'loop' in messages[0].content %}" + LOOPS + "{% endif %}"
    "{% if 'bad' in messages[0].content %}{{ raise_exception('no such words') }}{% endif %}"
    "{% if 'break' in messages[0].content %}{{ 1 / 0 }}{% endif %}{{ messages[0].content }}"
)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A file with a byte-level tokenizer and the given changes to its metadata."""

    def write(metadata: dict[str, Any] | None = None, **changes: Any) -> Path:
        keys = {f"tokenizer.{name.replace('__', '.')}": value for name, value in changes.items()}
        return write_gguf(tmp_path / "model.gguf", {**(metadata or bpe_tokenizer()), **keys})

    return write


@pytest.fixture
def process() -> Iterator[TextHarness]:
    with text_process() as harness:
        yield harness


def letters(word: str) -> list[int]:
    return [4 + ord(letter) for letter in word]


def failure(process: TextHarness, request: int) -> tuple[str, str, str | None]:
    """(code, message, param) of the failed request whose end is the next event."""
    event = process.event()
    assert isinstance(event, Finished)
    assert (event.id, event.reason) == (request, "error")
    assert event.failure is not None
    return event.failure.code, event.failure.message, event.failure.param


def exit_status(process: TextHarness) -> int:
    return process.process.wait(timeout=10)


def test_a_chat_from_words_to_words(process: TextHarness, model: Model):
    ready = process.start(model())
    assert (ready.vocab_size, ready.has_chat_template) == (272, True)
    process.submit(1, "hello")
    generate = process.generate()
    assert generate.prompt_ids[0] == 1
    assert set(generate.stop_ids) == {0, END}
    assert generate.max_tokens == 16
    assert process.event() == Accepted(id=1, prompt_tokens=len(generate.prompt_ids))
    for token in letters("hi"):
        process.step((1, token))
    process.step((1, END), ended=(Ended(id=1, reason="stop"),))
    assert [process.event(), process.event()] == [Delta(id=1, text=char, tokens=1) for char in "hi"]
    usage = Usage(prompt_tokens=len(generate.prompt_ids), completion_tokens=2)
    assert process.event() == Finished(id=1, reason="stop", usage=usage)


def test_a_batch_comes_in_one_frame_a_step(process: TextHarness, model: Model):
    process.start(model())
    for request in range(1, 9):
        process.submit(request, text("hello"))
    accepted = [process.event() for _ in range(8)]
    assert sorted(event.id for event in accepted) == list(range(1, 9))
    process.step(*((request, letters("x")[0]) for request in range(1, 9)))
    assert process.events() == tuple(Delta(id=request, text="x", tokens=1) for request in range(1, 9))


def test_raw_text_parses_control_tokens_and_chat_does_not(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, text("<|im_start|>he"))
    assert process.generate().prompt_ids == (1, 260)
    process.submit(2, "<|im_end|>\n<|im_start|>system")
    ids = process.generate().prompt_ids
    assert [token for token in ids if token < 4] == [1, END, 1]


def test_one_bos_for_a_model_that_wants_it(process: TextHarness, model: Model):
    template = "{{ bos_token }}{{ messages[0].content }}"
    process.start(model(spm_tokenizer(), chat_template=template))
    for request, prompt in enumerate((chat("hello"), text("hello"), text("<s>hello"))):
        process.submit(request, prompt)
        ids = process.generate().prompt_ids
        assert (ids[0], ids.count(1)) == (1, 1)
    process.submit(9, text(""))
    assert process.generate().prompt_ids == (1,)


def test_token_ids_are_taken_as_they_are(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, TokenPrompt(ids=(1, 5, 271)))
    assert process.generate().prompt_ids == (1, 5, 271)
    process.event()
    for request, ids in ((2, (1, 272)), (3, (-1,)), (4, (*range(200), 272, *range(20)))):
        process.submit(request, TokenPrompt(ids=ids))
        code, message, param = failure(process, request)
        assert (code, param) == ("bad_token", "prompt")
        assert f"token {272 if 272 in ids else -1} at index" in message


def test_token_ids_are_counted_before_they_are_looked_at(process: TextHarness, model: Model):
    process.start(model(), limits=Limits(max_prompt_len=10, max_decode_len=8, max_model_len=12))
    process.submit(1, TokenPrompt(ids=(272,) * 1_000_000))
    code, message, param = failure(process, 1)
    assert (code, param) == ("prompt_too_long", "prompt")
    assert "1000000 tokens" in message


def test_empty_prompts(process: TextHarness, model: Model):
    process.start(model())
    for request, prompt in ((1, text("")), (2, TokenPrompt(ids=()))):
        process.submit(request, prompt)
        assert failure(process, request)[0] == "empty_prompt"


def test_limits_and_the_default_of_max_tokens(process: TextHarness, model: Model):
    process.start(model(), limits=Limits(max_prompt_len=10, max_decode_len=8, max_model_len=12))
    for request, words, asked, given in ((1, "xx", None, 8), (2, "x" * 8, None, 4), (3, "xx", 3, 3)):
        process.submit(request, text(words), max_tokens=asked)
        assert process.generate().max_tokens == given
        process.event()
    process.submit(4, text("x" * 11))
    assert failure(process, 4)[::2] == ("prompt_too_long", "prompt")
    process.submit(5, text("xx"), max_tokens=9)
    code, message, param = failure(process, 5)
    assert (code, param) == ("max_tokens_too_large", "max_tokens")
    assert "max_decode_len" in message
    process.submit(6, "x" * 2_000_000)
    code, message, param = failure(process, 6)
    assert (code, param) == ("prompt_too_long", "messages")
    assert "at least" in message


def test_a_long_prompt_does_not_hold_up_the_others(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, text("hello"))
    process.event()
    process.submit(2, text("hello world " * 200_000))
    process.step((1, letters("x")[0]))
    assert process.event() == Delta(id=1, text="x", tokens=1)
    event = process.event()
    assert isinstance(event, Accepted)
    assert event.id == 2


def test_a_stop_string_ends_it_here_and_frees_the_engine(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, text("hello"), stop=("STOP", "never"))
    process.generate()
    process.event()
    for token in letters("aSTOPz"):
        process.step((1, token))
    events = [process.event() for _ in range(4)]
    assert events == [Delta(id=1, text=char, tokens=1) for char in ("a", "", "", "")]
    assert process.events() == (
        Delta(id=1, text="", tokens=1),
        Finished(id=1, reason="stop", usage=Usage(prompt_tokens=1, completion_tokens=5)),
    )
    assert process.engine.expect(Abort) == Abort(id=1)
    process.submit(2, text("hello"))
    assert process.event() == Accepted(id=2, prompt_tokens=1)  # nothing more of the first


def test_an_abort_reaches_the_engine_and_nothing_follows(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, text("hello"))
    process.generate()
    process.event()
    process.data.send(Abort(id=1))
    assert process.engine.expect(Abort) == Abort(id=1)
    process.step((1, letters("x")[0]), ended=(Ended(id=1, reason="length"),))
    process.submit(2, text("hello"))
    assert process.event() == Accepted(id=2, prompt_tokens=1)
    process.data.send(Abort(id=99))  # never heard of
    process.submit(3, text("hello"))
    assert process.event() == Accepted(id=3, prompt_tokens=1)


def test_an_abort_while_encoding_keeps_it_from_the_engine(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, text("hello world " * 100_000))
    process.data.send(Abort(id=1))
    process.submit(2, text("hello"))
    assert process.generate().id == 2
    assert process.event() == Accepted(id=2, prompt_tokens=1)


def test_aborted_renders_hold_up_nobody(process: TextHarness, model: Model):
    """Each would loop for two seconds."""
    process.start(model(chat_template=PICKY))
    for request in range(1, 31):
        process.submit(request, "loop")
    for request in range(1, 31):
        process.data.send(Abort(id=request))
    process.submit(99, "fine")
    assert isinstance(event := process.event(), Accepted)
    assert event.id == 99


def test_failures_of_templates_are_typed_and_harm_nobody_else(process: TextHarness, model: Model):
    process.start(model(chat_template=PICKY))
    process.submit(1, "fine")
    process.event()
    process.submit(2, "loop")
    process.submit(3, text("hello"))
    process.step((1, letters("x")[0]))
    assert {event.id for event in (process.event(), process.event())} == {1, 3}
    code, message, param = failure(process, 2)
    assert (code, param) == ("template_timeout", "messages")
    assert "2 s" in message
    process.submit(4, "bad")
    code, message, _ = failure(process, 4)
    assert code == "template_rejected"
    assert "no such words" in message
    process.submit(5, "break")
    assert failure(process, 5)[0] == "template_failed"
    process.submit(6, "fine")
    assert isinstance(process.event(), Accepted)


def test_chat_without_a_template_names_the_field(process: TextHarness, model: Model):
    assert not process.start(model(chat_template=None)).has_chat_template
    process.submit(1, "hello")
    code, message, param = failure(process, 1)
    assert (code, param) == ("no_chat_template", "messages")
    assert "chat_template" in message


def test_the_documents_template_wins(process: TextHarness, model: Model):
    assert process.start(model(chat_template=None), chat_template="chatml").has_chat_template
    process.submit(1, "he")
    assert process.generate().prompt_ids[0] == 1


@pytest.mark.parametrize(
    ("template", "code", "words"),
    [
        ("{% if %}", "HRT-1006", "chat template invalid: line 1"),
        ("{{ 1 / 0 }}", "HRT-1006", "ZeroDivisionError"),
        (LOOPS, "HRT-1005", "ran for more than 2 s"),
    ],
)
def test_a_template_that_cannot_work_fails_the_start(
    process: TextHarness, model: Model, template: str, code: str, words: str
):
    process.begin(model(), chat_template=template)
    failed = process.control.expect(StartFailed).failure
    assert failed.code == code
    assert words in failed.message
    process.control.close()
    assert exit_status(process) == 0


def test_a_failed_start_ends_even_if_nobody_listens(process: TextHarness, tmp_path: Path):
    process.begin(tmp_path / "none")
    process.control.expect(StartFailed)
    assert process.control.ended()
    assert exit_status(process) == 0


@pytest.mark.parametrize(
    ("data", "code"), [(b"", "HCK-1001"), (b"HALOGEN2" + bytes(9), "HCK-1003"), (None, "HCK-1010")]
)
def test_a_checkpoint_that_cannot_be_read_fails_the_start(
    process: TextHarness, tmp_path: Path, data: bytes | None, code: str
):
    if data is not None:
        (tmp_path / "m").write_bytes(data)
    process.begin(tmp_path / "m")
    failed = process.control.expect(StartFailed).failure
    assert failed.code == code
    assert str(tmp_path) in failed.message


def test_a_file_that_contradicts_the_stated_format_fails_the_start(process: TextHarness, model: Model):
    process.control.expect(Hello)
    spec = TextSpec(path=str(model()), load_format="safetensors", chat_template=None, limits=WIDE)
    process.control.send(StartText(spec=spec))
    assert process.control.expect(StartFailed).failure.code == "HCK-1002"


def test_a_live_update_counts_from_its_commit(process: TextHarness, model: Model):
    process.start(model(), limits=Limits(max_prompt_len=4, max_decode_len=4, max_model_len=8))
    wider = Limits(max_prompt_len=6, max_decode_len=4, max_model_len=10)
    process.control.send(PrepareText(update=1, limits=wider, chat_template="{{ 'he' }}"))
    assert process.control.expect(Prepared) == Prepared(update=1)
    process.submit(1, text("xxxxx"), max_tokens=None)
    assert failure(process, 1)[0] == "prompt_too_long"
    process.control.send(Commit(update=1))
    process.control.send(PrepareText(update=2, limits=wider, chat_template=None))  # a round trip: the commit is in
    process.control.expect(Prepared)
    process.submit(2, text("xxxxx"), max_tokens=None)
    assert isinstance(process.event(), Accepted)
    process.generate()
    process.submit(3, "anything", max_tokens=None)
    assert process.generate().prompt_ids == (260,)


def test_a_discarded_update_leaves_everything_as_it_was(process: TextHarness, model: Model):
    narrow = Limits(max_prompt_len=1, max_decode_len=1, max_model_len=2)
    process.start(model())
    process.control.send(PrepareText(update=1, limits=narrow, chat_template=None))
    process.control.expect(Prepared)
    process.control.send(Discard(update=1))
    process.control.send(Commit(update=1))
    process.control.send(PrepareText(update=2, limits=narrow, chat_template=None))
    process.control.expect(Prepared)
    process.submit(1, text("xxxxx"))
    assert isinstance(process.event(), Accepted)


def test_an_update_discarded_while_it_is_tried_is_forgotten(process: TextHarness, model: Model):
    process.start(model())
    for update in range(1, 9):
        process.control.send(PrepareText(update=update, limits=WIDE, chat_template=LOOPS))
        process.control.send(Discard(update=update))
    process.control.send(PrepareText(update=9, limits=WIDE, chat_template="{{ 'he' }}"))
    assert process.control.expect(Prepared) == Prepared(update=9)
    process.control.send(PrepareText(update=10, limits=WIDE, chat_template=LOOPS))
    assert process.control.expect(Prepared).update == 10  # none of the others was answered meanwhile


def test_an_update_with_a_bad_template_is_refused(process: TextHarness, model: Model):
    process.start(model())
    for update, template, code in ((1, "{% if %}", "HRT-1006"), (2, LOOPS, "HRT-1005")):
        process.control.send(PrepareText(update=update, limits=WIDE, chat_template=template))
        refused = process.control.expect(Prepared)
        assert refused.failure is not None
        assert (refused.update, refused.failure.code) == (update, code)
    process.submit(1, "hello")
    assert isinstance(process.event(), Accepted)


def test_progress_is_told_before_during_and_after(process: TextHarness, model: Model):
    seen: list[Progress] = []
    process.begin(model())
    while not isinstance(message := process.control.next(), TextReady):
        assert isinstance(message, Progress)
        seen.append(message)
    serving = process.control.next()
    assert isinstance(serving, Progress)
    assert (serving.stage, serving.busy) == ("serving", False)
    process.submit(1, text("hello"))
    process.event()
    process.step((1, letters("x")[0]))
    process.event()
    later = serving
    while later.counter < serving.counter + 2:  # one for the request and one for the step, in two ticks perhaps
        message = process.control.next()
        assert isinstance(message, Progress)
        later = message
    assert [mark.counter for mark in seen] == sorted(mark.counter for mark in seen)


def test_the_engines_end_ends_every_request_and_the_process(process: TextHarness, model: Model):
    process.start(model())
    for request in (1, 2):
        process.submit(request, text("hello"))
        process.event()
    process.step((1, letters("x")[0]))
    process.event()
    process.engine.close()
    ends = process.events()
    assert [(end.id, end.failure.code) for end in ends if isinstance(end, Finished) and end.failure] == [
        (1, "engine_died"),
        (2, "engine_died"),
    ]
    assert [end.usage.completion_tokens for end in ends if isinstance(end, Finished)] == [1, 0]
    assert process.data.ended()
    assert exit_status(process) == 0


@pytest.mark.parametrize("how", ["stop", "control", "data"])
def test_it_ends_at_once_when_told_or_left_alone(process: TextHarness, model: Model, how: str):
    process.start(model())
    process.submit(1, "hello")
    process.event()
    children = child_pids(process.process.pid)
    assert len(children) == 1  # the one that renders
    if how == "stop":
        process.control.send(Stop())
    else:
        getattr(process, how).close()
    assert exit_status(process) == 0
    for pid in children:
        gone(pid)


def test_a_stop_before_the_start(process: TextHarness):
    process.control.expect(Hello)
    process.control.send(Stop())
    assert exit_status(process) == 0


def test_a_killed_process_takes_its_child_along(process: TextHarness, model: Model):
    process.start(model())
    process.submit(1, "hello")
    process.event()
    (child,) = child_pids(process.process.pid)
    process.process.send_signal(signal.SIGKILL)
    assert exit_status(process) == -9
    gone(child)


def test_an_orphan_exits_at_once():
    ended = subprocess.run(
        [sys.executable, "-m", "halogend.text", "--control-fd=0", "--data-fd=0", "--engine-fd=0", "--parent-pid=1"],
        check=False,
        timeout=30,
    )
    assert ended.returncode == 6


def child_pids(pid: int) -> list[int]:
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]


def gone(pid: int) -> None:
    """Waits for the end of a process that is not our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], 10)[0]
    finally:
        os.close(fd)
