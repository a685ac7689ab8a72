"""The text process, played. Points: load, ready, submit, prepare, commit."""

from __future__ import annotations

import os
from typing import Any

from support.played.player import Order, Player

from halogend.wire.control import Commit, Prepared, PrepareText, StartText, TextReady
from halogend.wire.failure import Failure
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import (
    Abort,
    Accepted,
    Delta,
    Finished,
    Generate,
    Prompt,
    StepOutput,
    Submit,
    TextEvents,
    TextPrompt,
    TokenPrompt,
    Usage,
)


class Text(Player):
    """A byte is a token. The end of the engine alone does not end it."""

    def __init__(self) -> None:
        super().__init__("text", "data", "engine")
        self.tokens: dict[int, int] = {}
        self.prompts: dict[int, int] = {}

    def handle(self, name: str, message: AnyMessage) -> None:
        match message:
            case StartText():
                self.path = message.spec.path
                self.enters("loading")
                self.at("load", self._loaded)
            case PrepareText():
                self.at("prepare", lambda order: self._prepare(order, message))
            case Commit():
                self.at("commit", lambda order: None)
            case Submit():
                self.at(
                    "submit", lambda order: self._submit(order, message), prompt=bytes(_ids(message.prompt)).decode()
                )
            case Abort():
                self.tell(message, "engine")
            case StepOutput():
                self._pass_on(message)

    def _loaded(self, order: Order) -> None:
        if order["do"] == "fail":
            self.refuse(order)
        else:
            self.at("ready", self._ready)

    def _ready(self, order: Order) -> None:
        self.enters("serving")
        self.tell(TextReady(vocab_size=256, has_chat_template=True, load_s=0.0))
        if order["do"] == "end":
            os._exit(order["status"])

    def _prepare(self, order: Order, message: PrepareText) -> None:
        failure = Failure(code=order["code"], message=order["message"]) if order["do"] == "fail" else None
        self.tell(Prepared(update=message.update, failure=failure))

    def _submit(self, order: Order, message: Submit) -> None:
        ids = _ids(message.prompt)
        self.tokens[message.id], self.prompts[message.id] = 0, len(ids)
        if order["do"] == "fail":
            self._say(self._finished(message.id, "error", Failure(code=order["code"], message=order["message"])))
            return
        self._say(Accepted(id=message.id, prompt_tokens=len(ids)))
        generate = Generate(
            id=message.id,
            prompt_ids=ids,
            max_tokens=message.max_tokens or 8,
            sampling=message.sampling,
            stop_ids=(),
        )
        self.tell(generate, "engine")

    def _pass_on(self, output: StepOutput) -> None:
        for each in output.sampled:
            self.tokens[each.id] += 1
            self._say(Delta(id=each.id, text=chr(each.token), tokens=1))
        for end in output.ended:
            self._say(self._finished(end.id, end.reason, end.failure))

    def _finished(self, request: int, reason: str, failure: Failure | None) -> Finished:
        usage = Usage(prompt_tokens=self.prompts[request], completion_tokens=self.tokens[request])
        return Finished(id=request, reason=reason, usage=usage, failure=failure)

    def _say(self, event: Any) -> None:
        self.tell(TextEvents(events=(event,)), "data")


def _ids(prompt: Prompt) -> tuple[int, ...]:
    match prompt:
        case TextPrompt():
            return tuple(prompt.text.encode())
        case TokenPrompt():
            return prompt.ids
        case _:
            raise TypeError("a played text process knows no template")


if __name__ == "__main__":
    Text().play()
