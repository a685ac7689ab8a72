"""The engine, played. Points: import, load, ready, serving, generate, prepare, commit, discard."""

from __future__ import annotations

import os
from typing import Any

from support.played.player import Order, Player

from halogend.wire.control import (
    Commit,
    Discard,
    EngineReady,
    PoolResized,
    Prepared,
    PrepareEngine,
    SetRest,
    SetThreads,
    StartEngine,
)
from halogend.wire.failure import Failure
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import Abort, Ended, Generate, Sampled, StepOutput
from halogend.wire.stats import EngineStats


class Engine(Player):
    """Tokens are bytes; `answer` of an order is the text it generates. What is said to it before its Hello waits."""

    def __init__(self) -> None:
        super().__init__("engine", "data")
        self.pool_bytes = self.touched = 0
        self.made = 0
        self.used = 0
        self.prepared: dict[int, PrepareEngine] = {}
        self.early: list[tuple[str, AnyMessage]] | None = []

    def begin(self) -> None:
        self.enters("importing")
        self.at("import", self._imported, niceness=self.niceness)

    def handle(self, name: str, message: AnyMessage) -> None:
        if self.early is not None:
            self.early.append((name, message))
            return
        match message:
            case StartEngine():
                self.path, self.pool_bytes = message.spec.path, message.spec.limits.pool_bytes
                self.enters("loading")
                self.at("load", self._loaded, pool_bytes=self.pool_bytes, threads=message.spec.threads)
            case PrepareEngine():
                self.at("prepare", lambda order: self._prepare(order, message))
            case Commit():
                self.pool_bytes = self.prepared[message.update].limits.pool_bytes
                self.at("commit", lambda order: self._commit(message.update), pool_bytes=self.pool_bytes)
            case Discard():
                self.at("discard", lambda order: None)
            case SetThreads():
                self.at("threads", lambda order: None, threads=message.threads)
            case SetRest():
                self.at("rest", lambda order: None, share=message.share)
            case Generate():
                self.at("generate", lambda order: self._generate(order, message), **_asked(message))
            case Abort():
                self.at("abort", lambda order: None)

    def lost(self, name: str) -> None:
        super().lost(name)
        if name == "data" and not self.is_deaf:
            os._exit(4)

    def _imported(self, order: Order) -> None:
        if order["do"] == "fail":
            self.refuse(order)
            return
        self.enters("starting")
        self.greet()
        early, self.early = self.early or [], None
        for name, message in early:
            self.handle(name, message)

    def _loaded(self, order: Order) -> None:
        if order["do"] == "fail":
            self.refuse(order)
        else:
            self.at("ready", self._ready)

    def _ready(self, order: Order) -> None:
        self.enters("serving")
        self.touched = order.get("touched_bytes", 0)
        ready = EngineReady(
            weights_bytes=1,
            pool_bytes=self.pool_bytes,
            block_bytes=1,
            block_count=self.pool_bytes,
            load_s=0.0,
            warmup_s=0.0,
            kernels={"attention": "played"},
            pool_touched_bytes=self.touched,
            transient_bytes=order.get("transient_bytes"),
        )
        self.tell(ready)
        if order["do"] == "end":
            os._exit(order["status"])

    def _prepare(self, order: Order, message: PrepareEngine) -> None:
        failure = Failure(code=order["code"], message=order["message"]) if order["do"] == "fail" else None
        self.prepared[message.update] = message
        self.tell(Prepared(update=message.update, failure=failure))

    def _commit(self, update: int) -> None:
        self.tell(PoolResized(update=update, pool_bytes=self.pool_bytes, touched_bytes=self.pool_bytes))

    def _generate(self, order: Order, message: Generate) -> None:
        """`token` one, `finish` ends; `go` does both as often as was asked for. `blocks` are in use from then on."""
        self.used = order.get("blocks", self.used)
        if order["do"] in ("go", "token"):
            count = message.max_tokens if order["do"] == "go" else 1
            sampled = tuple(Sampled(id=message.id, token=ord("x")) for _ in range(min(count, 8)))
            self.made += len(sampled)
            self.tell(StepOutput(sampled=sampled, ended=()), "data")
        if order["do"] in ("go", "finish"):
            self.tell(StepOutput(sampled=(), ended=(Ended(id=message.id, reason="length"),)), "data")
        if order["do"] == "fail":
            failure = Failure(code=order["code"], message=order["message"])
            self.tell(StepOutput(sampled=(), ended=(Ended(id=message.id, reason="error", failure=failure),)), "data")
        self.tell(self._stats())

    def _stats(self) -> EngineStats:
        return EngineStats(
            running=0,
            waiting=0,
            blocks_total=self.pool_bytes,
            blocks_used=self.used,
            preemptions=0,
            prompt_tokens=0,
            generated_tokens=self.made,
            steps=self.made,
            prefill_step_s=0.0,
            decode_step_s=0.0,
            pool_touched_bytes=self.touched,
        )


def _asked(message: Generate) -> dict[str, Any]:
    return {"prompt": bytes(message.prompt_ids).decode()}


if __name__ == "__main__":
    Engine().play()
