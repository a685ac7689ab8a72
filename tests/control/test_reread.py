"""Keys whose files changed are taken by themselves, whatever else is wrong, and nothing else is touched."""

from pathlib import Path

import pytest
from support.played.world import document, reached

from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.control.receipts import Receipt


class Keyed:
    """A world in which `a` serves behind one key, whose file is `path`."""

    def __init__(self, world, path: Path) -> None:
        self.world = world
        self.path = path
        self.prepared: list[str] = []
        self.put("first-value-0123456789")
        self.auth = {"keys": [{"name": "team", "file": str(path)}]}
        prepare = world.sockets.prepare

        async def seen(server, access):
            self.prepared.append(",".join(key.fingerprint[:12] for key in access.keys or ()))
            return await prepare(server, access)

        world.sockets.prepare = seen

    def put(self, value: str) -> None:
        self.path.write_text(value)
        self.path.chmod(0o600)

    def lose_model(self) -> None:
        Path(self.world.model("a")["model"]).unlink()

    async def reread(self) -> Receipt:
        receipt = self.world.reconciler.reread(self.path)
        await reached(receipt)
        return receipt


@pytest.fixture
async def keyed(serving, tmp_path):
    world = await serving()
    made = Keyed(world, tmp_path / "key")
    receipt = await world.apply(world.model("a"), server={"auth": made.auth})
    assert receipt.outcome == "applied"
    assert [change["field"] for change in receipt.server_changes] == ["server.auth", "server.auth.keys.team"]
    made.prepared.clear()
    return made


async def test_a_changed_key_is_applied_and_loads_nothing(keyed):
    loads = keyed.world.stage.loads()
    keyed.put("second-value-0123456789")
    receipt = await keyed.reread()
    assert (receipt.outcome, receipt.trigger, receipt.actor) == ("applied", "file", f"input {keyed.path}")
    (change,) = receipt.server_changes
    assert change["field"] == f"input {keyed.path}"
    assert keyed.prepared == [change["new"]]
    assert keyed.world.stage.loads() == loads
    assert keyed.world.status()["settled"]
    assert keyed.world.status()["revision"]["active"] == receipt.revision[:12]


async def test_a_file_that_was_only_touched_changes_nothing(keyed):
    keyed.put("  first-value-0123456789\n")
    before = dict(keyed.world.reconciler.signatures())
    receipt = await keyed.reread()
    assert (receipt.outcome, receipt.server_changes) == ("unchanged", ())
    assert keyed.prepared == []
    assert keyed.world.reconciler.signatures() != before


async def test_r8_an_empty_file_is_rejected_with_its_place_and_the_next_good_one_applied(keyed):
    keyed.put("")
    receipt = await keyed.reread()
    assert receipt.outcome == "rejected"
    (problem,) = receipt.problems
    assert (problem.code, problem.path, problem.file) == (Code.KEY_FILE, "server.auth.keys[0].file", "config.yaml")
    assert problem.line is not None
    assert keyed.prepared == []
    keyed.put("second-value-0123456789")
    assert (await keyed.reread()).outcome == "applied"


async def test_l13_neither_a_bad_source_nor_a_lost_model_file_keeps_an_old_key_in_force(keyed):
    keyed.lose_model()
    keyed.world.text = "models: ["
    keyed.put("second-value-0123456789")
    assert (await keyed.reread()).outcome == "applied"
    assert keyed.world.unit("a").alive() is not None


@pytest.mark.parametrize("stage", ["refuse_prepare", "refuse_commit"])
async def test_l3_listeners_that_refuse_leave_the_old_key_in_force(keyed, stage):
    keyed.put("second-value-0123456789")
    setattr(keyed.world.sockets, stage, Problem(Code.LISTENER_ADDRESS, "out of descriptors"))
    assert (await keyed.reread()).outcome == "rejected"
    setattr(keyed.world.sockets, stage, None)
    again = await keyed.reread()
    assert (again.outcome, len(again.server_changes)) == ("applied", 1)


async def test_a_plain_reload_takes_it_too(keyed):
    keyed.put("second-value-0123456789")
    receipt = keyed.world.edit(document(keyed.world.model("a"), server={"auth": keyed.auth}))
    await reached(receipt)
    assert (receipt.outcome, receipt.revision) == ("applied", receipt.previous_revision)
    assert [change["field"] for change in receipt.server_changes] == [f"input {keyed.path}"]
    assert (await keyed.reread()).outcome == "unchanged"


async def test_before_a_document_there_is_nothing_to_read(world, tmp_path):
    fresh = await world()
    receipt = fresh.reconciler.reread(tmp_path / "key")
    await reached(receipt)
    assert receipt.outcome == "rejected"
