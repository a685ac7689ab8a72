"""Events: which of them are the same one."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fakekube import FakeKube
from halogen_operator import login
from halogen_operator.events import Event
from halogen_operator.kube import Kube
from halogen_operator.recorder import made_of, record
from support.operators import halogen_model

_NOW = dt.datetime(2026, 1, 1, 12, 1, tzinfo=dt.UTC)
_EVENT = Event("Warning", "Rejected", "spec.model: is not there")


def _body(generation: int = 1) -> dict[str, Any]:
    body = halogen_model("a" * 63)
    body["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": generation}
    return body


def _name(body: dict[str, Any], event: Event = _EVENT, after_s: float = 0.0) -> str:
    name: str = made_of(body, event, _NOW + dt.timedelta(seconds=after_s), "me")["metadata"]["name"]
    return name


def test_the_same_words_of_the_same_generation_are_one_event_for_a_while() -> None:
    assert _name(_body()) == _name({**_body(), "status": {"observedGeneration": 1}}, after_s=300.0)
    assert _name(_body()) != _name(_body(), after_s=600.0)
    assert _name(_body()) != _name(_body(generation=2))
    assert _name(_body()) != _name(_body(), Event("Warning", "Rejected", "spec.device: is not there"))


def test_a_name_is_as_long_as_names_may_be_and_a_message_too() -> None:
    made = made_of(_body(), Event("Normal", "Serving", "x" * 5000), _NOW, "me")
    assert len(made["metadata"]["name"]) <= 253
    assert len(made["message"]) == 1024


async def test_an_event_that_is_there_or_cannot_be_posted_keeps_nobody_waiting() -> None:
    async with FakeKube() as kube:
        access = login.Access(kube.url)
        connector = login.connector(access)
        async with connector, login.session(access, connector) as session:
            api = Kube(session, kube.url)
            await record(api, _body(), [_EVENT, _EVENT], _NOW, "me")
            kube.faults.fail(403, verb="create", kind="Event")
            other = Event("Normal", "Serving", "2 of 2")
            await record(api, _body(), [Event("Normal", "Progressing", "x"), other], _NOW, "me")
        posted = {one["reason"]: one for one in kube.objects.list("Event", "default")}
    assert set(posted) == {"Rejected", "Serving"}
    assert posted["Rejected"]["involvedObject"]["uid"] == "u"
    assert posted["Rejected"]["reportingInstance"] == "me"
