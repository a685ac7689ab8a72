"""A real text process with the test at the other ends of its three sockets."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from halogend.wire.base import Message
from halogend.wire.channel import ChannelClosedError, WorkerChannel, wait
from halogend.wire.control import Hello, Progress, StartText, TextReady
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import (
    ChatMessage,
    ChatPrompt,
    Ended,
    Generate,
    Prompt,
    Sampled,
    Sampling,
    StepOutput,
    Submit,
    TextEvent,
    TextEvents,
    TextPrompt,
)
from halogend.wire.specs import Limits, TextSpec

GREEDY = Sampling(
    temperature=0.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    seed=0,
)
WIDE = Limits(max_prompt_len=1 << 20, max_decode_len=1 << 20, max_model_len=1 << 21)
M = TypeVar("M", bound=Message)


class Peer:
    """One end: messages are taken in order, each wait has a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = WorkerChannel(sock)
        self._here: list[AnyMessage] = []

    def send(self, message: AnyMessage) -> None:
        """Returns when the kernel has all of it."""
        self._channel.send(message)
        while self._channel.unsent_bytes:
            select.select([], [self._channel], [], 10)
            self._channel.flush()

    def next(self, timeout_s: float = 20.0) -> AnyMessage:
        deadline = time.monotonic() + timeout_s
        while not self._here:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no message came")
            wait([self._channel], left)
            self._here.extend(self._channel.receive())
        return self._here.pop(0)

    def expect(self, kind: type[M], timeout_s: float = 20.0) -> M:
        """The next message that is no Progress; it must be of this kind."""
        while isinstance(message := self.next(timeout_s), Progress):
            pass
        assert isinstance(message, kind), message
        return message

    def ended(self, timeout_s: float = 10.0) -> bool:
        """Reads until the stream ends; whether nothing but Progress came before."""
        clean = True
        with contextlib.suppress(ChannelClosedError):
            while True:
                clean &= isinstance(self.next(timeout_s), Progress)
        return clean

    def close(self) -> None:
        self._channel.close()


class TextHarness:
    """`control` and `data` are the daemon's ends, `engine` is the engine's."""

    def __init__(self) -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        command = [sys.executable, "-P", "-m", "halogend.text", "--parent-pid", str(os.getpid())]
        for name, (theirs, _) in zip(("control", "data", "engine"), pairs, strict=True):
            command += [f"--{name}-fd", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno() for theirs, _ in pairs], stderr=subprocess.PIPE, text=True
        )
        for theirs, _ in pairs:
            theirs.close()
        self.control, self.data, self.engine = (Peer(ours) for _, ours in pairs)

    def start(self, path: Path, *, limits: Limits = WIDE, chat_template: str | None = None) -> TextReady:
        self.begin(path, limits=limits, chat_template=chat_template)
        return self.control.expect(TextReady)

    def begin(self, path: Path, *, limits: Limits = WIDE, chat_template: str | None = None) -> None:
        """Start without waiting for ready."""
        assert self.control.expect(Hello).role == "text"
        spec = TextSpec(path=str(path), load_format="auto", chat_template=chat_template, limits=limits)
        self.control.send(StartText(spec=spec))

    def submit(
        self, request_id: int, prompt: Prompt | str, *, max_tokens: int | None = 16, stop: tuple[str, ...] = ()
    ) -> None:
        """A str is a chat of one user message."""
        if isinstance(prompt, str):
            prompt = chat(prompt)
        self.data.send(Submit(id=request_id, prompt=prompt, sampling=GREEDY, max_tokens=max_tokens, stop=stop))

    def events(self, timeout_s: float = 20.0) -> tuple[TextEvent, ...]:
        """Of the next frame."""
        return self.data.expect(TextEvents, timeout_s).events

    def event(self, timeout_s: float = 20.0) -> TextEvent:
        (event,) = self.events(timeout_s)
        return event

    def generate(self) -> Generate:
        return self.engine.expect(Generate)

    def step(self, *sampled: tuple[int, int], ended: tuple[Ended, ...] = ()) -> None:
        """The engine's output of one step: (request, token)s and ends."""
        self.engine.send(
            StepOutput(sampled=tuple(Sampled(id=request, token=token) for request, token in sampled), ended=ended)
        )

    def close(self) -> tuple[int, str]:
        """Ends the process if it lives, and returns its status and what it logged."""
        for peer in (self.control, self.data, self.engine):
            peer.close()
        try:
            _, log = self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, log = self.process.communicate()
        return self.process.returncode, log


def chat(*contents: str) -> ChatPrompt:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    return ChatPrompt(
        messages=tuple(ChatMessage(role=roles[index % 2], content=text) for index, text in enumerate(contents))
    )


def text(content: str) -> TextPrompt:
    return TextPrompt(text=content)


@contextlib.contextmanager
def text_process() -> Iterator[TextHarness]:
    """Checks at the end that the process left no error of its own in the log."""
    harness = TextHarness()
    try:
        yield harness
    finally:
        status, log = harness.close()
    assert "Traceback" not in log, log
    assert status in (0, -9), (status, log)
