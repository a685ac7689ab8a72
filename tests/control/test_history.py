"""What outlives a run, and what lies in its folder that is not ours."""

import hashlib
import json

import pytest

from halogend.config.problems import Problem
from halogend.control.history import History, Hold, Kept
from halogend.control.receipts import Milestone, ModelAction, ModelRecord, Outcome, Receipts, StepRecord
from halogend.control.state_dir import StateDir


@pytest.fixture
async def kept(tmp_path):
    """A history in the folder; the one before it is stopped first."""
    made = []

    async def open_():
        for each in made:
            await each.stop()
        made[:] = [History(StateDir.open(tmp_path / "state"))]
        return made[0]

    yield open_
    for each in made:
        await each.stop()


def document(text, receipt, at=1.0):
    return Kept(revision=hashlib.sha256(text.encode()).hexdigest(), receipt=receipt, at=at), text


def full_receipt():
    receipt = Receipts(clock=lambda: 7.0, last=11).open("file", "file", "c.yaml")
    receipt.revision, receipt.outcome = "abc", Outcome.PARTIALLY_APPLIED
    receipt.problems = (Problem("HRT-1008", "busy", "end it", "c.yaml", 3, 4, "server.port"),)
    receipt.server_changes = ({"field": "server.port", "old": 1, "new": 2, "class": "listener"},)
    step = StepRecord("load", 8.0, 2.5, "it failed", {"generation": 3, "expected_bytes": 9})
    record = ModelRecord("a", ModelAction.REPLACE, ({"field": "x"},), {"read_bytes": 5}, [step], Outcome.FAILED, "no")
    receipt.models = {"a": record}
    receipt.reach(Milestone.CLOSED, 9.0)
    return receipt


async def test_receipts_documents_and_the_hold_come_back_as_they_were(kept):
    history = await kept()
    receipt = full_receipt()
    history.keep(receipt)
    for each in (document("one\n", "r3"), document("two\n", "r5"), document("one\n", "r7")):
        history.became_active(*each)
    history.set_hold(Hold(since=5.0, by="uid:0", put_off=True))
    again = await kept()
    assert [each.view() for each in again.earlier] == [receipt.view()]
    assert [(again.text(each), each.receipt) for each in again.active] == [("two\n", "r5"), ("one\n", "r7")]
    assert again.hold == Hold(since=5.0, by="uid:0", put_off=True)
    assert again.last_receipt == 12
    assert again.before(again.active[-1].revision).receipt == "r5"
    assert Receipts(earlier=again.earlier, last=again.last_receipt).open("api", "x").id == "r13"
    again.set_hold(None)
    assert (await kept()).hold is None


async def test_l12_a_receipt_that_was_open_says_that_the_daemon_ended_and_nobody_waits_for_it(kept):
    history = await kept()
    receipt = Receipts().open("api", "uid:0")
    history.keep(receipt)
    (earlier,) = (await kept()).earlier
    assert earlier.outcome is Outcome.FAILED
    assert [problem.code for problem in earlier.problems] == ["HRT-1019"]
    assert earlier.milestones == {}
    await earlier.wait(Milestone.CLOSED)


async def test_the_history_is_bounded_in_memory_and_on_disk(kept, tmp_path):
    history = await kept()
    receipts = Receipts(keep=5, dropped=history.forget)
    for number in range(30):
        receipt = receipts.open("api", "x")
        receipt.outcome = Outcome.UNCHANGED
        receipt.reach(Milestone.CLOSED, 1.0)
        history.keep(receipt)
        history.became_active(*document(f"{number}\n", receipt.id))
    again = await kept()
    assert len(again.earlier) <= 6
    assert len(again.active) == 20
    assert again.active[-1].receipt == "r30"
    assert len(list((tmp_path / "state/documents").iterdir())) == 20


BAD = [b"", b"{", b"null", b"[]", b'{"format": 2}', b"\xff\xfe", b'{"format": 1, "active": [{}]}']


@pytest.mark.parametrize("data", BAD)
async def test_a_broken_or_foreign_state_is_set_aside_and_never_fatal(kept, tmp_path, data):
    history = await kept()
    history.keep(full_receipt())
    history.became_active(*document("one\n", "r12"))
    await kept()
    (tmp_path / "state/state.json").write_bytes(data)
    again = await kept()
    assert (again.active, again.hold) == ((), None)
    assert [each.id for each in again.earlier] == ["r12"]
    assert (tmp_path / "state/state.json.bad").read_bytes() == data
    again.became_active(*document("two\n", "r13"))
    assert [each.receipt for each in (await kept()).active] == ["r13"]


@pytest.mark.parametrize(
    "data", [*BAD[:-1], b'{"format": 1, "receipt": {}}', b'{"format": 1, "receipt": {"id": "r9"}}']
)
async def test_a_broken_or_foreign_receipt_is_set_aside(kept, tmp_path, data):
    history = await kept()
    history.keep(full_receipt())
    await kept()
    (tmp_path / "state/receipts/r9").write_bytes(data)
    (tmp_path / "state/receipts/r8").write_bytes((tmp_path / "state/receipts/r12").read_bytes())
    again = await kept()
    assert [each.id for each in again.earlier] == ["r12"]
    assert (tmp_path / "state/receipts/r9.bad").read_bytes() == data
    assert (tmp_path / "state/receipts/r8.bad").exists()


async def test_a_document_that_was_altered_is_no_way_back(kept, tmp_path):
    history = await kept()
    for each in (document("one\n", "r1"), document("two\n", "r2")):
        history.became_active(*each)
    await kept()
    (tmp_path / "state/documents" / history.active[0].revision).write_text("evil\n")
    assert [each.receipt for each in (await kept()).active] == ["r2"]


async def test_a_receipt_of_an_older_release_without_newer_keys_is_read(kept, tmp_path):
    history = await kept()
    history.keep(full_receipt())
    await kept()
    path = tmp_path / "state/receipts/r12"
    whole = json.loads(path.read_text())
    del whole["receipt"]["source"]
    whole["receipt"]["later"] = 1
    path.write_text(json.dumps(whole))
    (earlier,) = (await kept()).earlier
    assert (earlier.id, earlier.source) == ("r12", "")


async def test_a_hold_and_a_document_that_a_full_disk_did_not_take_are_there_when_it_takes_them(kept, tmp_path):
    """Each write fails once, and nothing further is ever asked of the history."""
    history = await kept()
    folder = history._writer.folder
    write, tried = folder.write, set()

    def late(name, data):
        if name not in tried:
            tried.add(name)
            raise OSError(28, "No space left on device")
        write(name, data)

    folder.write = late
    history.became_active(*document("one\n", "r1"))
    history.set_hold(Hold(since=5.0, by="uid:0"))
    await history._writer._idle.wait()
    assert history.view()["trouble"] == "No space left on device"
    again = await kept()
    assert [again.text(each) for each in again.active] == ["one\n"]
    assert again.hold == Hold(since=5.0, by="uid:0")


async def test_without_a_folder_everything_but_the_next_run_is_the_same():
    history = History()
    history.became_active(*document("one\n", "r1"))
    history.set_hold(Hold(since=1.0, by="x"))
    assert history.text(history.active[0]) == "one\n"
    assert (history.view(), history.last_receipt, history.earlier) == (None, 1, ())
    await history.stop()
