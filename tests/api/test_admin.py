"""The admin application: every outcome's status, waiting, and who asked."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.played.world import until

from halogend.api.addresses import UnixAddress
from halogend.api.admin import admin_app
from halogend.api.listener import Listener
from halogend.control.planning import Given
from halogend.control.push import Push
from halogend.control.receipts import Milestone, Outcome, Receipt, Receipts
from halogend.control.requests import RequestError


class ScriptedAdmin:
    """Opens real receipts; the test moves them on."""

    def __init__(self) -> None:
        self.held = Receipts(clock=lambda: 100.0)
        self.asked = asyncio.Event()
        self.put_off = False
        self.pushes: list[Push] = []

    def status(self) -> dict[str, Any]:
        return {"models": []}

    def receipts(self) -> tuple[Receipt, ...]:
        return self.held.all()

    def receipt(self, receipt_id: str) -> Receipt | None:
        return self.held.get(receipt_id)

    def reload(self, trigger: str, actor: str, *, force: bool = False) -> Receipt:
        self.asked.set()
        return self.held.open(trigger, f"{actor} by force" if force else actor)

    def document(self, *, is_desired: bool = False) -> tuple[str, str | None]:
        return "models: []\n", "d" * 64 if is_desired else "a" * 64

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        self.pushes.append(push)
        return self.held.open("put", f"{actor} by force" if force else actor)

    async def plan_put(self, push: Push, *, force: bool = False) -> dict[str, Any]:
        return {"outcome": "changes", "file": push.file}

    async def plan(self, given: Given | None) -> dict[str, Any]:
        if given is None:
            return {"outcome": "unchanged"}
        return {"outcome": "rejected" if b"bad" in given.content.data else "changes", "file": given.file}

    async def plan_rollback(self, receipt_id: str | None) -> dict[str, Any]:
        return {"outcome": "changes", "to": receipt_id}

    def rollback(self, receipt_id: str | None, actor: str) -> Receipt:
        if receipt_id == "r0":
            raise RequestError("document_not_kept", "No document of `r0` is kept.")
        return self.held.open("rollback", actor, f"kept:{receipt_id}")

    def hold(self, actor: str) -> dict[str, Any]:
        return {"hold": {"by": actor}}

    def resume(self, actor: str) -> Receipt | None:
        return self.held.open("resume", actor) if self.put_off else None

    def ledger(self) -> dict[str, Any]:
        return {"devices": {}}


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
        ledger = (await client.get("/ledger")).json()
        unbuilt = await client.get("/nothing")
    assert document.text == "models: []\n"
    assert ledger == {"devices": {}}
    assert [each["id"] for each in listed["receipts"]] == [second.id, first.id]
    assert one.json() == first.view()
    assert (none.status_code, none.json()["error"]["code"]) == (404, "receipt_not_found")
    assert (unbuilt.status_code, unbuilt.json()["error"]["code"]) == (404, "not_found")


async def test_receipts_of_one_origin() -> None:
    admin = ScriptedAdmin()
    made = [admin.held.open("put", "key:operator") for _ in range(4)]
    for receipt, uid in zip(made, ("u", "v", "u"), strict=False):
        receipt.origin = {"uid": uid, "generation": 1}
    async with client_of(admin) as client:
        ours, newest, none = [
            [each["id"] for each in (await client.get(f"/receipts?{query}")).json()["receipts"]]
            for query in ("uid=u", "uid=u&limit=1", "uid=nobody")
        ]
    assert ours == [made[2].id, made[0].id]
    assert (newest, none) == ([made[2].id], [])


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
    Outcome.ROLLED_BACK: 500,
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
        waiting = asyncio.create_task(client.post("/reload?wait=closed", timeout=60))
        await until(lambda: len(admin.held.all()) == 2, "the change is there")
        waiting.cancel()  # l12: the caller leaves, the change stays
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await client.get("/receipts/r2")).json()["outcome"] is None
    await listener.close(0)


@pytest.mark.parametrize("name", ["a%0aREADY=1", "%1b%5b31m", "x" * 4097])
async def test_a_file_name_that_would_write_on_terminals_is_refused(name: str) -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        answers = [
            await client.put(f"/document?file={name}", content=b"models: []"),
            await client.post(f"/plan?file={name}", content=b"good"),
        ]
    assert [(each.status_code, each.json()["error"]["param"]) for each in answers] == [(400, "file")] * 2
    assert admin.pushes == []


async def test_r7_a_plan_that_would_be_rejected_is_no_success() -> None:
    async with client_of(ScriptedAdmin()) as client:
        source = await client.get("/plan")
        fine = await client.post("/plan?file=%2Fetc%2Fc.yaml", content=b"good")
        bad = await client.post("/plan", content=b"bad")
        large = await client.post("/plan", content=b" " * ((4 << 20) + 1))
    assert (source.status_code, source.json()) == (200, {"outcome": "unchanged"})
    assert (fine.status_code, fine.json()) == (200, {"outcome": "changes", "file": "/etc/c.yaml"})
    assert (bad.status_code, bad.json()) == (422, {"outcome": "rejected", "file": ""})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_dry_run_asks_for_nothing() -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        reload = await client.post("/reload?dry_run=true")
        rollback = await client.post("/rollback?receipt=r3&dry_run=true")
        unclear = await client.post("/rollback?dry_run=maybe")
    assert (reload.status_code, reload.json()["outcome"]) == (200, "unchanged")
    assert (rollback.status_code, rollback.json()) == (200, {"outcome": "changes", "to": "r3"})
    assert (unclear.status_code, unclear.json()["error"]["param"]) == (400, "dry_run")
    assert admin.held.all() == ()


async def test_rolling_back_holding_and_resuming() -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        back = await client.post("/rollback?receipt=r3")
        lost = await client.post("/rollback?receipt=r0")
        forced = await client.post("/reload?force=true")
        held = await client.post("/hold")
        free = await client.post("/resume")
        admin.put_off = True
        unclear = await client.post("/resume?wait=forever")
        put_off = await client.post("/resume")
    assert (back.status_code, back.json()["trigger"], back.json()["source"]) == (202, "rollback", "kept:r3")
    assert (lost.status_code, lost.json()["error"]["code"]) == (404, "document_not_kept")
    assert forced.json()["actor"] == "unix by force"
    assert held.json() == {"hold": {"by": "unix"}}
    assert (free.status_code, free.json()) == (200, {"hold": None})
    assert unclear.status_code == 400
    assert (put_off.status_code, put_off.json()["trigger"]) == (202, "resume")
    assert put_off.headers["location"].endswith(put_off.json()["id"])


async def test_the_tag_of_a_document_is_its_revision() -> None:
    async with client_of(ScriptedAdmin()) as client:
        active, desired = await client.get("/document"), await client.get("/document?of=desired")
        unclear = await client.get("/document?of=mine")
    assert (active.headers["etag"], desired.headers["etag"]) == (f'"{"a" * 64}"', f'"{"d" * 64}"')
    assert (unclear.status_code, unclear.json()["error"]["param"]) == (400, "of")


async def test_a_put_hands_over_the_body_and_what_its_headers_say() -> None:
    admin = ScriptedAdmin()
    headers = {
        "if-match": f'"{"a" * 12}", "{"b" * 64}"',
        "halogen-origin": "uid=default/chat-5f, generation=7",
        "content-type": "application/yaml; charset=utf-8",
    }
    async with client_of(admin) as client:
        plain = await client.put("/document?file=git:main", content=b"models: []", headers=headers)
        forced = await client.put("/document?force=true", content=b'{"models": []}')
        dry = await client.put("/document?dry_run=true", content=b"x")
    push, bare = admin.pushes
    assert (plain.status_code, plain.json()["trigger"]) == (202, "put")
    assert (push.content.data, push.file) == (b"models: []", "git:main")
    assert push.expects == ("a" * 12, "b" * 64)
    assert (push.origin.uid, push.origin.generation) == ("default/chat-5f", 7)
    assert (bare.expects, bare.origin, bare.file) == ((), None, "pushed")
    assert forced.json()["actor"] == "unix by force"
    assert (dry.status_code, dry.json()) == (200, {"outcome": "changes", "file": "pushed"})


@pytest.mark.parametrize(
    ("headers", "status", "param"),
    [
        ({"if-match": ""}, 400, "If-Match"),
        ({"if-match": "aaaaaaaaaaaa"}, 400, "If-Match"),
        ({"if-match": '"aaa"'}, 400, "If-Match"),
        ({"if-match": 'W/"aaaaaaaaaaaa"'}, 400, "If-Match"),
        ({"if-match": ", ".join(['"aaaaaaaaaaaa"'] * 17)}, 400, "If-Match"),
        ({"halogen-origin": ""}, 400, "Halogen-Origin"),
        ({"halogen-origin": "uid=a"}, 400, "Halogen-Origin"),
        ({"halogen-origin": "uid=a, generation=-1"}, 400, "Halogen-Origin"),
        ({"halogen-origin": "uid=a b, generation=1"}, 400, "Halogen-Origin"),
        ({"halogen-origin": f"uid={'a' * 129}, generation=1"}, 400, "Halogen-Origin"),
        ({"halogen-origin": "uid=a, generation=" + "9" * 19}, 400, "Halogen-Origin"),
        ({"content-type": "text/html"}, 415, "Content-Type"),
        ({"content-type": "multipart/form-data; boundary=x"}, 415, "Content-Type"),
        ({"content-encoding": "gzip"}, 415, None),
    ],
)
async def test_a_put_whose_headers_are_wrong_asks_for_nothing(headers, status, param) -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        answer = await client.put("/document", content=b"models: []", headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert admin.pushes == []


async def test_a_put_that_is_too_large_or_asks_for_nonsense() -> None:
    admin = ScriptedAdmin()
    async with client_of(admin) as client:
        large = await client.put("/document", content=b" " * ((4 << 20) + 1))
        unclear = [await client.put(f"/document?{each}", content=b"x") for each in ("wait=x", "dry_run=x", "force=x")]
    assert large.status_code == 413
    assert [each.status_code for each in unclear] == [400, 400, 400]
    assert admin.pushes == []
