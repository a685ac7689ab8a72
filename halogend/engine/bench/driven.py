"""An engine process under load: started as the daemon starts one, spoken to on its own channels.

One thread drives it: `submit`, `abort` and `turn`, which waits for frames and notes when each came. Times
are of `time.monotonic`, taken when a frame is read.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.sizes import VALUE_BYTES
from halogend.obs.processor import numbers
from halogend.wire.channel import ChannelClosedError, WorkerChannel, wait
from halogend.wire.control import (
    Commit,
    EngineReady,
    Hello,
    PoolResized,
    Prepared,
    PrepareEngine,
    StartEngine,
    StartFailed,
    Stop,
)
from halogend.wire.environment import WORKER_ENVIRONMENT
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import Abort, Generate, Sampling, StepOutput
from halogend.wire.specs import EngineLimits, EngineSpec
from halogend.wire.stats import EngineStats

_Told = TypeVar("_Told", bound=AnyMessage)

_ORDINARY_ID = 300  # past the control tokens and bytes of usual vocabularies
_STDERR = 2  # where its log goes: standard output is for figures
PATIENCE_S = 120.0  # without a word, from an engine that has something to do
GREEDY = Sampling(
    temperature=0,
    top_p=1,
    top_k=0,
    min_p=0,
    repetition_penalty=1,
    presence_penalty=0,
    frequency_penalty=0,
    seed=0,
)


class EngineLostError(Exception):
    """The engine ended, failed to start or fell silent; the message says which."""


def kv_bytes(model: str, tokens: int, precision: str = "") -> int:
    """What `tokens` positions take in every layer, windows left aside; without a `precision` in the processor's own
    numbers. Raises CheckpointError."""
    geometry = open_checkpoint(model, "auto").geometry
    return tokens * geometry.layers * 2 * geometry.kv_heads * geometry.head_dim * VALUE_BYTES[precision or numbers()]


class Prompts:
    """Random ids of a model's vocabulary, the same for the same number: no two prompts begin alike. Raises
    CheckpointError."""

    def __init__(self, model: str) -> None:
        vocab = open_checkpoint(model, "auto").geometry.vocab
        self._ids = range(min(_ORDINARY_ID, vocab // 2), vocab)

    def make(self, number: int, tokens: int) -> tuple[int, ...]:
        return tuple(random.Random(number).choices(self._ids, k=tokens))  # noqa: S311 (a load, not a secret)


def make_spec(model: str, limits: EngineLimits, threads: int, precision: str = "") -> EngineSpec:
    """As the daemon makes one for the CPU, in its own numbers where no `precision` is given. Raises CheckpointError."""
    precision = precision or numbers()
    geometry = open_checkpoint(model, "auto").geometry
    return EngineSpec(
        path=model,
        load_format="auto",
        precision=precision,
        compute_dtype=precision,
        stretched=geometry.is_stretched(limits.max_model_len),
        kv_cache_dtype=precision,
        flash_attention=True,
        backend="cpu",
        max_model_len=geometry.context_length,
        pool_reserve_bytes=limits.pool_bytes,
        threads=threads,
        load_threads=0,
        limits=limits,
    )


class DrivenEngine:
    """One engine process, serving when it is entered; it is ended when it is left, whatever its state.

    `stats` is its last word about itself, `step_s` the (kind, seconds) of every step it told of. `began_s` is when its
    process was started, `hello_s` when it had imported what a load needs and said Hello, `asked_s` when it was told
    what to load, `ready_s` when it could serve. One that is `ahead` was told after its Hello, as the daemon's spare
    one is, another at once; `on_hello` is called between the two.
    """

    def __init__(self, spec: EngineSpec, *, ahead: bool = False, on_hello: Callable[[], None] = lambda: None) -> None:
        self.stats: EngineStats | None = None
        self.step_s: list[tuple[str, float]] = []
        self._spec = spec
        self._is_ahead = ahead
        self._on_hello = on_hello
        self._updates = 0
        self._told: list[AnyMessage] = []

    def __enter__(self) -> Self:
        our_control, their_control = socket.socketpair()
        our_data, their_data = socket.socketpair()
        with their_control, their_data:
            fds = (their_control.fileno(), their_data.fileno())
            command = [sys.executable, "-m", "halogend.engine", "--control-fd", str(fds[0]), "--data-fd", str(fds[1])]
            environ = {**os.environ, **WORKER_ENVIRONMENT, "OMP_NUM_THREADS": str(self._spec.threads)}
            self.began_s = time.monotonic()
            self._process = subprocess.Popen(
                [*command, "--parent-pid", str(os.getpid())],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                env=environ,
            )
        self._control, self._data = WorkerChannel(our_control), WorkerChannel(our_data)
        try:
            if not self._is_ahead:
                self._ask()
            self._await(Hello)
            self.hello_s = time.monotonic()
            self._on_hello()
            if self._is_ahead:
                self._ask()
            self.ready = self._await(EngineReady)
            self.ready_s = time.monotonic()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._control.close()
        self._data.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def submit(self, request: Generate) -> None:
        self._data.send(request)

    def abort(self, request_id: int) -> None:
        self._data.send(Abort(id=request_id))

    def change(self, limits: EngineLimits) -> None:
        """A live change, in force when this returns. Raises EngineLostError when it is refused."""
        self._updates += 1
        self._control.send(PrepareEngine(update=self._updates, limits=limits))
        answer = self._await(Prepared)
        if answer.failure is not None:
            raise EngineLostError(answer.failure.message)
        self._control.send(Commit(update=self._updates))
        self._await(PoolResized)

    def turn(self, timeout_s: float) -> list[tuple[float, StepOutput]]:
        """The frames that are here within `timeout_s`, each with the time it was read."""
        try:
            readable = wait((self._control, self._data), timeout_s)
            if self._control in readable:
                self._listen()
            frames = self._data.receive() if self._data in readable else []
        except ChannelClosedError as error:
            raise EngineLostError(f"the engine ended with status {self._process.wait()}") from error
        now = time.monotonic()
        return [(now, frame) for frame in frames if isinstance(frame, StepOutput)]

    def waited_s(self) -> dict[str, float]:
        """How long each of its threads has been ready to run and was not given a processor, by the thread's id;
        nothing where the system does not count it (Linux does, proc(5), schedstat)."""
        waited = {}
        for thread in Path(f"/proc/{self._process.pid}/task").glob("*"):
            with contextlib.suppress(OSError, IndexError):
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        return waited

    def stop(self) -> int:
        """Tells it to end; its exit status."""
        with contextlib.suppress(ChannelClosedError):
            self._control.send(Stop())
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # it writes where each of its threads stands
            return self._process.wait()

    def _ask(self) -> None:
        self.asked_s = time.monotonic()
        self._control.send(StartEngine(spec=self._spec))

    def _await(self, kind: type[_Told]) -> _Told:
        """The next message of that kind on control; frames that come meanwhile stay where they are."""
        while True:
            for place, message in enumerate(self._told):
                if isinstance(message, kind):
                    del self._told[place]
                    return message
            if not wait((self._control,), PATIENCE_S):
                raise EngineLostError(f"the engine says no {kind.__name__}")
            try:
                self._listen()
            except ChannelClosedError as error:
                raise EngineLostError(f"the engine ended with status {self._process.wait()}") from error

    def _listen(self) -> None:
        for message in self._control.receive():
            match message:
                case EngineStats():
                    self.stats = message
                    self.step_s += message.step_s
                case StartFailed():
                    raise EngineLostError(message.failure.message)
                case Hello() | EngineReady() | Prepared() | PoolResized():
                    self._told.append(message)
                case _:
                    pass
