"""A text process played by the test, at the other end of a generation's real data socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from halogend.control.generation import Generation
from halogend.control.process import Host
from halogend.control.replica import State
from halogend.control.replica_spec import ReplicaSpec
from halogend.wire.channel import AsyncChannel
from halogend.wire.control import EngineReady, TextReady
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import Abort, Accepted, Delta, Finished, Submit, TextEvents, Usage
from halogend.wire.specs import EngineLimits, EngineSpec, Limits, TextSpec

LIMITS = Limits(max_prompt_len=100, max_decode_len=100, max_model_len=100)


def spec_of(model: str) -> ReplicaSpec:
    limits = EngineLimits(
        max_model_len=100,
        max_batch=4,
        max_queue=4,
        queue_timeout_s=1.0,
        request_timeout_s=0.0,
        prefill_chunk_tokens=0,
        pool_bytes=1 << 20,
    )
    engine = EngineSpec(
        path="m.gguf",
        load_format="auto",
        precision="fp32",
        compute_dtype="fp32",
        stretched=False,
        kv_cache_dtype="fp32",
        flash_attention=True,
        backend="cpu",
        max_model_len=100,
        pool_reserve_bytes=1 << 20,
        threads=1,
        load_threads=0,
        limits=limits,
    )
    text = TextSpec(path="m.gguf", load_format="auto", chat_template=None, limits=LIMITS)
    return ReplicaSpec(model, text, engine, progress_timeout_s=5.0, warmup_prompt="")


class FakeText:
    """`submitted` and `aborted` are what arrived; `say` sends events."""

    def __init__(self) -> None:
        self.submitted: list[Submit] = []
        self.aborted: list[int] = []
        self.closed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._channel: AsyncChannel | None = None

    async def generation(self, model: str = "m", number: int = 1) -> Generation:
        """A generation that is ready as far as the router can see."""
        ours, theirs = socket.socketpair()
        self._channel = await AsyncChannel.open(theirs, self._take, lambda error: self.closed.set())
        made = Generation([spec_of(model)], number, Host({}, None))
        (replica,) = made.replicas
        await replica.client.connect(ours)
        engine = EngineReady(
            weights_bytes=1, pool_bytes=1, block_bytes=1, block_count=1, load_s=0.0, warmup_s=0.0, kernels={}
        )
        replica._startup.take(engine)
        replica._startup.take(TextReady(vocab_size=9, has_chat_template=False, load_s=0.0))
        replica.state = State.READY
        return made

    def die(self) -> None:
        self._channel.close()

    async def close(self) -> None:
        self._channel.close()
        await self.closed.wait()

    def say(self, *events: Accepted | Delta | Finished) -> None:
        self._channel.send(TextEvents(events=events))

    def accept(self, request: Submit) -> None:
        self.say(Accepted(id=request.id, prompt_tokens=3))

    def token(self, request: Submit, text: str) -> None:
        self.say(Delta(id=request.id, text=text, tokens=1))

    def finish(self, request: Submit) -> None:
        self.say(Finished(id=request.id, reason="stop", usage=Usage(prompt_tokens=3, completion_tokens=1)))

    async def until_submitted(self, count: int) -> list[Submit]:
        await self._until(lambda: len(self.submitted) >= count)
        return self.submitted

    async def until_aborted(self, count: int) -> list[int]:
        await self._until(lambda: len(self.aborted) >= count)
        return self.aborted

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    def _take(self, message: AnyMessage) -> None:
        if isinstance(message, Submit):
            self.submitted.append(message)
        elif isinstance(message, Abort):
            self.aborted.append(message.id)
        self._arrived.set()
