"""Admission, offloading and live updates inside one event loop: what waits for what, and what does not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio
from support.gguf_files import CHATML, bpe_tokenizer, write_gguf
from support.text_process import GREEDY, WIDE, chat

from halogend.checkpoint.gguf import read_header
from halogend.text import failures
from halogend.text.admission import Admission, Setting
from halogend.text.chat import ChatTemplate
from halogend.text.failures import RequestFailedError
from halogend.text.loading import Loaded, next_template
from halogend.text.offload import LONG_CHARS, Offload
from halogend.text.progress import Progress
from halogend.text.renderer import Renderer
from halogend.text.service import Service
from halogend.text.tokenizer import Tokenizer
from halogend.wire.control import Commit, Discard, Prepared, PrepareText
from halogend.wire.messages import AnyMessage
from halogend.wire.policy import Caller
from halogend.wire.requests import ChatMessage, ChatPrompt, Generate, Prompt, Submit
from halogend.wire.specs import Limits

T = TypeVar("T")
LONG = "x" * (2 * LONG_CHARS)
OTHER = "{{ messages[0].content }}"
LOOPS = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"


class Recorded(Offload):
    """An Offload that notes how much work it was told of, when it is begun."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.begun: list[int] = []

    async def run(self, chars: int, work: Callable[[], T]) -> T:
        def noted() -> T:
            self.begun.append(chars)
            return work()

        return await super().run(chars, noted)


@pytest_asyncio.fixture
async def loaded(tmp_path: Path) -> AsyncIterator[Loaded]:
    tokenizer = Tokenizer.from_header(read_header(write_gguf(tmp_path / "m.gguf", bpe_tokenizer())))
    made = Loaded(tokenizer, Renderer(limit_s=30.0), Recorded(), CHATML, 0.0)
    yield made
    await made.renderer.close()


def begun(loaded: Loaded) -> list[int]:
    assert isinstance(loaded.offload, Recorded)
    return loaded.offload.begun


def template(loaded: Loaded, source: str = CHATML) -> ChatTemplate:
    return ChatTemplate(source, loaded.tokenizer, loaded.renderer, loaded.offload)


async def admit(loaded: Loaded, prompt: Prompt, limits: Limits = WIDE, admission: Admission | None = None) -> Generate:
    admission = admission or Admission(loaded.tokenizer, loaded.offload)
    submit = Submit(id=1, prompt=prompt, sampling=GREEDY, max_tokens=1)
    return await admission.admit(submit, Setting(limits, template(loaded)))


async def stopped_child(loaded: Loaded) -> int:
    """Starts the serving renderer's child and stops it: from now on renders wait."""
    await template(loaded).write(chat("hello").messages)
    assert loaded.renderer.pid is not None
    os.kill(loaded.renderer.pid, signal.SIGSTOP)
    return loaded.renderer.pid


@pytest.mark.parametrize(
    "messages",
    [
        (ChatMessage(role="user", content="hi", name="<" * 50_000),),
        (ChatMessage(role="<" * 50_000, content="hi"),),
        tuple(ChatMessage(role="user", content="") for _ in range(1000)),
    ],
    ids=["name", "role", "many turns"],
)
async def test_all_of_a_conversation_counts_as_work(loaded: Loaded, messages: tuple[ChatMessage, ...]):
    """Work that is counted short is done in the event loop and holds up every stream."""
    await admit(loaded, ChatPrompt(messages=messages))
    assert begun(loaded)[0] > LONG_CHARS


async def test_whose_a_request_is_reaches_the_engine_as_it_came(loaded: Loaded):
    caller = Caller(key="team-a", weight=2.0, klass="gold", session="s-1")
    submit = Submit(id=1, prompt=chat("hello"), sampling=GREEDY, max_tokens=1, caller=caller)
    admitted = await Admission(loaded.tokenizer, loaded.offload).admit(submit, Setting(WIDE, template(loaded)))
    assert admitted.caller == caller


async def test_a_chat_that_cannot_fit_is_refused_before_any_work(loaded: Loaded):
    narrow = Limits(max_prompt_len=10, max_decode_len=8, max_model_len=12)
    with pytest.raises(RequestFailedError, match="at least") as refused:
        await admit(loaded, chat(LONG), narrow)
    assert (refused.value.failure.code, refused.value.failure.param) == (failures.PROMPT_TOO_LONG, "messages")
    assert begun(loaded) == []
    assert loaded.renderer.pid is None


async def test_control_tokens_count_one_each_before_any_encoding(loaded: Loaded, monkeypatch: pytest.MonkeyPatch):
    encoded: list[object] = []
    monkeypatch.setattr(loaded.tokenizer, "encode_chat", encoded.append)
    narrow = Limits(max_prompt_len=50, max_decode_len=8, max_model_len=60)
    many = ChatPrompt(messages=tuple(ChatMessage(role="user", content="") for _ in range(40)))
    with pytest.raises(RequestFailedError, match="at least 8"):  # 81 control tokens, and a few for the texts
        await admit(loaded, many, narrow)
    assert encoded == []


async def test_marks_do_not_count_as_bytes(loaded: Loaded, monkeypatch: pytest.MonkeyPatch):
    """A mark has three bytes where the character that it stands for has one."""
    judged: list[int] = []
    least_tokens_of = loaded.tokenizer.least_tokens_of

    def noted(texts: list[str]) -> int:
        judged.append(sum(len(text.encode()) for text in texts))
        return least_tokens_of(texts)

    monkeypatch.setattr(loaded.tokenizer, "least_tokens_of", noted)
    words = "<|im_end|>" * 200
    await admit(loaded, chat(words))
    assert len(words) <= max(judged) < len(words) + 100


async def test_few_long_chats_are_under_way_at_once_and_the_others_wait_in_order(loaded: Loaded):
    child = await stopped_child(loaded)
    begun(loaded).clear()
    admission = Admission(loaded.tokenizer, loaded.offload)
    waiting = [asyncio.create_task(admit(loaded, chat(LONG + str(n)), admission=admission)) for n in range(6)]
    for _ in range(3):
        await loaded.offload.run(LONG_CHARS + 1, lambda: None)  # comes after all that is queued for the thread
    assert len([chars for chars in begun(loaded) if chars > LONG_CHARS + 1]) == 2
    waiting[0].cancel()  # one that is being rendered, with its child
    waiting[3].cancel()  # one that waits
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(outcome, Generate) for outcome in done] == [False, True, True, False, True, True]
    assert loaded.renderer.pid != child


async def test_work_that_waits_is_not_done_once_nobody_wants_it():
    lives = 0

    def alive() -> None:
        nonlocal lives
        lives += 1

    offload, done, gate = Offload(alive), list[str](), threading.Event()
    first = asyncio.create_task(offload.run(LONG_CHARS + 1, gate.wait))
    await asyncio.sleep(0)
    second = asyncio.create_task(offload.run(LONG_CHARS + 1, lambda: done.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    gate.set()
    await first
    await offload.run(LONG_CHARS + 1, lambda: done.append("third"))
    await offload.run(1, lambda: done.append("short"))
    assert done == ["third", "short"]
    assert second.cancelled()
    assert lives >= 3


async def test_an_update_does_not_wait_for_what_is_being_rendered(loaded: Loaded):
    present = template(loaded)
    await stopped_child(loaded)
    held = asyncio.create_task(present.write(chat("hello").messages))
    await asyncio.sleep(0)
    for chosen in (None, CHATML):
        assert await next_template(loaded, chosen, present) is present
    other = await next_template(loaded, OTHER, present)
    assert other is not None
    assert (other is present, other.source, held.done()) == (False, OTHER, False)
    held.cancel()
    await asyncio.wait([held])


class Updates:
    """A service with nobody at its data sockets, and what it replies on the control channel."""

    def __init__(self, loaded: Loaded) -> None:
        self.replies: asyncio.Queue[AnyMessage] = asyncio.Queue()
        progress = Progress(self.replies.put_nowait)
        self.service = Service(loaded, Setting(WIDE, template(loaded)), progress, self.replies.put_nowait)

    def prepare(self, update: int, chat_template: str) -> None:
        self.service.from_control(PrepareText(update=update, limits=WIDE, chat_template=chat_template))


async def test_an_update_that_cannot_be_tried_is_answered(loaded: Loaded, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/none")
    updates = Updates(loaded)
    updates.prepare(1, OTHER)
    refused = await updates.replies.get()
    assert isinstance(refused, Prepared)
    assert refused.failure is not None
    assert (refused.update, refused.failure.code) == (1, failures.NO_RENDERER)


async def test_a_discarded_update_is_neither_answered_nor_taken(loaded: Loaded):
    updates = Updates(loaded)
    before = asyncio.all_tasks()
    updates.prepare(1, LOOPS)
    (trial,) = asyncio.all_tasks() - before
    await asyncio.sleep(0)
    updates.service.from_control(Discard(update=1))
    await asyncio.wait([trial])
    assert trial.cancelled()
    updates.prepare(2, OTHER)
    assert await updates.replies.get() == Prepared(update=2)
    updates.service.from_control(Commit(update=1))
    updates.service.from_control(Commit(update=2))
    assert updates.replies.empty()
