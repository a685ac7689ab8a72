"""The admin application: every outcome's status, waiting, and who asked."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from halogend.api.addresses import UnixAddress
from halogend.api.admin import admin_app
from halogend.api.listener import Listener
from halogend.control.receipts import Milestone, Outcome, Receipt, Receipts


class ScriptedAdmin:
    """Opens real receipts; the test moves them on."""

    def __init__(self) -> None:
        self.held = Receipts(clock=lambda: 100.0)
        self.asked = asyncio.Event()

    def status(self) -> dict[str, Any]:
        return {"models": []}

    def receipts(self) -> tuple[Receipt, ...]:
        return self.held.all()

    def receipt(self, receipt_id: str) -> Receipt | None:
        return self.held.get(receipt_id)

    def reload(self, trigger: str, actor: str) -> Receipt:
        self.asked.set()
        return self.held.open(trigger, actor)

    def document(self) -> str:
        return "models: []\n"


def client_of(admin: ScriptedAdmin) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(admin_app(admin)), base_url="http://admin/admin/v1")


async def test_reading() -> None:
    admin = ScriptedAdmin()
    first, second = admin.held.open("file", "watcher"), admin.held.open("signal", "SIGHUP")
    async with client_of(admin) as client:
        assert (await client.get("/status")).json() == {"models": []}
        document = await client.get("/document")
        listed = (await client.get("/receipts")).json()
        one = await client.get(f"/receipts/{first.id}")
        none = await client.get("/receipts/r99")
        unbuilt = await client.get("/ledger")
    assert document.text == "models: []\n"
    assert [each["id"] for each in listed["receipts"]] == [second.id, first.id]
    assert one.json() == first.view()
    assert (none.status_code, none.json()["error"]["code"]) == (404, "receipt_not_found")
    assert (unbuilt.status_code, unbuilt.json()["error"]["code"]) == (404, "not_found")


async def test_a_reload_that_is_not_waited_for_is_accepted() -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        answer = await client.post("/reload")
        again = await client.get(answer.headers["location"].removeprefix("/admin/v1"))
    assert answer.status_code == 202
    assert again.json() == answer.json()
    assert (answer.json()["trigger"], answer.json()["actor"], answer.json()["outcome"]) == ("api", "unix", None)


STATUSES = {
    Outcome.APPLIED: 200,
    Outcome.UNCHANGED: 200,
    Outcome.PARTIALLY_APPLIED: 207,
    Outcome.SUPERSEDED: 409,
    Outcome.REJECTED: 422,
    Outcome.FAILED: 500,
}


@pytest.mark.parametrize("outcome", Outcome)
async def test_r7_the_status_says_how_it_ended(outcome: Outcome) -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        asking = asyncio.create_task(client.post("/reload?wait=serving"))
        await admin.asked.wait()
        (receipt,) = admin.held.all()
        receipt.outcome = outcome
        receipt.reach(Milestone.SERVING, 101.0)
        answer = await asking
    assert answer.status_code == STATUSES[outcome]
    assert answer.json()["outcome"] == outcome


async def test_waiting_goes_on_to_the_milestone_that_was_asked_for() -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        asking = asyncio.create_task(client.post("/reload?wait=closed"))
        await admin.asked.wait()
        (receipt,) = admin.held.all()
        later = asyncio.create_task(client.get(f"/receipts/{receipt.id}?wait=closed"))
        receipt.outcome = Outcome.APPLIED
        receipt.reach(Milestone.SERVING, 101.0)
        serving = await client.get(f"/receipts/{receipt.id}?wait=serving")
        assert not asking.done()
        receipt.reach(Milestone.CLOSED, 102.0)
        assert (await asking).json()["milestones"] == {"accepted": 101.0, "serving": 101.0, "closed": 102.0}
        assert (await later).status_code == serving.status_code == 200


async def test_a_wait_that_is_none_asks_for_nothing() -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        answer = await client.post("/reload?wait=forever")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "wait")
    assert admin.held.all() == ()


async def test_over_the_socket_the_kernel_says_who_asked(tmp_path: Path) -> None:
    admin = ScriptedAdmin()
    listener = Listener(admin_app(admin), UnixAddress(tmp_path / "s"))
    listener.bind()
    await listener.serve()
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s"))
    async with httpx.AsyncClient(transport=transport, base_url="http://x/admin/v1") as client:
        answer = await client.post("/reload")
        assert answer.json()["actor"] == f"uid:{os.getuid()}"
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/reload?wait=closed", timeout=0.05)  # l12: the caller leaves, the change stays
        assert (await client.get("/receipts/r2")).json()["outcome"] is None
    await listener.close(0)
