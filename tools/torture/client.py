"""The load: a process that asks as it is told and says of each request when it got what.

python -m torture.client SEED      orders on standard input, one Asked a line on standard output
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from torture import http11
from torture.clock import Clock
from torture.messages import Asked, Closed, End, Open, Order, Ports, Rest, Resting, Said
from torture.prompts import PROMPTS, body
from torture.stream import Stream

PATIENCE_S = 240.0
_DATA, _DONE = b"data: ", b"data: [DONE]"


class Choice(msgspec.Struct):
    text: str
    finish_reason: str | None


class Failure(msgspec.Struct):
    code: str


class Event(msgspec.Struct):
    """What of an event is looked at. It is one of the two."""

    choices: tuple[Choice, ...] = ()
    error: Failure | None = None


_read_event = msgspec.json.Decoder(Event).decode


@dataclass
class Exchange:
    """What one request has come to."""

    tokens_at: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    moved: int = 0
    is_finished: bool = False  # says the answer; whole it is with its last line
    is_whole: bool = False
    code: str = ""

    def asked(self, prompt: int, sent_at: float, ended_at: float) -> Asked:
        broken = End.CUT if self.tokens_at else End.FAILED
        return Asked(
            prompt=prompt,
            sent_at=sent_at,
            tokens_at=tuple(self.tokens_at),
            ended_at=ended_at,
            end=End.ANSWERED if self.is_whole else broken,
            code=self.code,
            moved=self.moved,
            text="".join(self.text),
        )


class Client:
    """Asks at the first of `ports` that does not refuse the connection."""

    def __init__(self, clock: Clock, ports: tuple[int, ...] = ()) -> None:
        self.ports = ports
        self._clock = clock

    async def ask(self, prompt: int) -> Asked:
        """Whatever happens to the request is its record."""
        sent_at, exchange = self._clock.now(), Exchange()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._stream(prompt, exchange)
        except (OSError, EOFError, ValueError) as error:  # TimeoutError is an OSError, a body cut short an EOFError
            exchange.code = exchange.code or type(error).__name__
        return exchange.asked(prompt % len(PROMPTS), sent_at, self._clock.now())

    async def _stream(self, prompt: int, exchange: Exchange) -> None:
        refusal: list[bytes] = []

        def take(line: bytes) -> None:
            if stream.status == 200:
                self._take(line, exchange)
            else:
                refusal.append(line)

        request = http11.request_of("POST", "/v1/completions", json.dumps(body(prompt)).encode())
        stream = Stream(request, take)
        try:
            await self._connect(stream, exchange)
            await stream.ended
        finally:
            stream.close()
        if stream.status != 200:
            exchange.code = f"{stream.status} {_code(b''.join(refusal))}"

    def _take(self, line: bytes, exchange: Exchange) -> None:
        """A line of an answer's body."""
        if not line.startswith(_DATA):
            return
        if line == _DONE:
            exchange.is_whole = exchange.is_finished and not exchange.code
            return
        event = _read_event(line[len(_DATA) :])
        if event.error is not None:
            exchange.code = event.error.code
            return
        (choice,) = event.choices
        if choice.text:
            exchange.tokens_at.append(self._clock.now())
            exchange.text.append(choice.text)
        exchange.is_finished |= choice.finish_reason is not None

    async def _connect(self, stream: Stream, exchange: Exchange) -> None:
        loop, tried = asyncio.get_running_loop(), set[int]()
        while (port := next((each for each in self.ports if each not in tried), None)) is not None:
            tried.add(port)
            try:
                await loop.create_connection(lambda: stream, "127.0.0.1", port)
            except ConnectionRefusedError:
                exchange.moved += 1
            else:
                return
        raise ConnectionRefusedError


def _code(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


class Load:
    """Requests at the pace that was ordered last. A change of pace cuts none that is on its way."""

    def __init__(self, client: Client, tell: Callable[[Said], None], chance: random.Random) -> None:
        self._client = client
        self._tell = tell
        self._chance = chance
        self._pace: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._number = 0

    def obey(self, order: Order) -> None:
        if isinstance(order, Ports):
            self._client.ports = order.ports
            return
        if self._pace is not None:
            self._pace.cancel()
        match order:
            case Open():
                work = self._open(order.rate)
            case Closed():
                work = self._closed(order.clients)
            case Rest():
                work = self._rest()
        self._pace = asyncio.create_task(work)

    async def _open(self, rate: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += self._chance.expovariate(rate)
            await asyncio.sleep(max(0.0, due - loop.time()))
            self._begin()

    async def _closed(self, clients: int) -> None:
        while True:
            while len(self._under_way) < clients:
                self._begin()
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)

    async def _rest(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._tell(Resting())

    def _begin(self) -> None:
        self._number += 1
        task = asyncio.create_task(self._ask(self._number))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, prompt: int) -> None:
        self._tell(await self._client.ask(prompt))


async def main(seed: int) -> None:
    """Until standard input ends."""
    out = sys.stdout.buffer

    def tell(said: Said) -> None:
        out.write(msgspec.json.encode(said) + b"\n")
        out.flush()

    load = Load(Client(Clock()), tell, random.Random(seed))  # noqa: S311  arrivals are no secret
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        load.obey(msgspec.json.decode(line, type=Order))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
