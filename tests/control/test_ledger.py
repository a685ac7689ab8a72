"""The ledger alone, and with an engine that confirms when it is told to."""

from dataclasses import replace

from support.played.world import until

from halogend.config.facts import MappedFile
from halogend.control.ledger import Holding, Ledger, together

MIB = 1 << 20


def holding(kv, weights=100, working=10):
    return Holding("cpu:0", weights * MIB, working * MIB, kv * MIB)


def test_what_shrinks_is_free_when_it_is_confirmed_and_what_grows_is_taken_at_once():
    ledger = Ledger()
    ledger.enter("a#1", holding(50))
    ledger.claim("a#1", 1, holding(20))
    assert ledger.taken_bytes("cpu:0") == 160 * MIB
    assert ledger.settle("a#1", 1) == 30 * MIB
    assert ledger.taken_bytes("cpu:0") == 130 * MIB
    ledger.claim("a#1", 2, holding(80))
    assert ledger.taken_bytes("cpu:0") == 190 * MIB
    ledger.drop("a#1", 2)
    assert ledger.taken_bytes("cpu:0") == 130 * MIB


def test_a_claim_outlives_the_confirmation_of_an_earlier_one():
    ledger = Ledger()
    ledger.enter("a#1", holding(50))
    ledger.claim("a#1", 1, holding(20))
    ledger.claim("a#1", 2, holding(40, working=30))
    assert ledger.holding("a#1") == holding(50, working=30)
    assert ledger.settle("a#1", 1) == 10 * MIB
    assert ledger.holding("a#1") == holding(40, working=30)
    assert ledger.settle("a#1", 2) == 0
    assert ledger.settle("a#1", 2) == 0, "once is enough"


def test_whoever_has_left_settles_nothing():
    ledger = Ledger()
    ledger.enter("a#1", holding(50))
    ledger.claim("a#1", 1, holding(70))
    assert ledger.leave("a#1") == holding(70)
    assert ledger.settle("a#1", 1) == 0
    ledger.drop("a#1", 1)
    assert ledger.held() == {}


def test_a_file_that_several_have_mapped_is_counted_once():
    ledger = Ledger()
    file, other = MappedFile(volume=7, inode=1, bytes=500 * MIB), MappedFile(volume=8, inode=1, bytes=30 * MIB)
    for name, mapped in {"a#1": (file,), "a#2": (file, other), "b#1": (other,)}.items():
        ledger.enter(name, replace(holding(50), mapped=mapped))
    assert ledger.taken_bytes("cpu:0") == (3 * 160 + 500 + 30) * MIB
    assert ledger.taken_bytes("cpu:0", besides=["a#2"]) == (2 * 160 + 500 + 30) * MIB
    assert ledger.leave("a#1").total_bytes == (160 + 500) * MIB
    assert ledger.taken_bytes("cpu:0") == (2 * 160 + 500 + 30) * MIB, "another one still has it mapped"


def test_a_mapped_file_is_one_in_what_covers_both():
    file = MappedFile(volume=7, inode=1, bytes=500 * MIB)
    old, new = replace(holding(50), mapped=(file,)), replace(holding(20), mapped=(file,))
    assert old.covering(new) == replace(holding(50), mapped=(file,))
    assert together([old, new]) == (160 + 130 + 500) * MIB


async def test_bytes_are_free_when_the_engine_has_confirmed_it(serving):
    there = await serving(kv_cache_bytes="64MiB", max_batch=4096)
    before = there.house.ledger.taken_bytes("cpu:0")
    commit = there.stage.hold("commit", role="engine")
    receipt = await there.apply(there.model("a", kv_cache_bytes="16MiB", max_batch=4096))
    assert receipt.outcome == "applied"
    await commit.reached()
    assert there.house.ledger.taken_bytes("cpu:0") == before
    commit.release()
    await until(lambda: there.house.ledger.taken_bytes("cpu:0") == before - 48 * MIB, "what it gave back is free")


async def test_a_pool_grows_when_another_ones_shrink_was_confirmed(world, serving):
    fields = {"kv_cache_bytes": "64MiB", "max_batch": 4096}
    first = await serving(**fields)
    alone = first.unit("a").active.holding
    await first.stop()
    there = await world(2 * alone.total_bytes - 40 * MIB)
    await there.apply(there.model("a", **fields))
    await there.apply(there.model("a", **fields), there.model("b", **fields))
    ledger = there.house.ledger
    squeezed = ledger.holding("b#1").kv_bytes
    assert squeezed == 24 * MIB
    commit = there.stage.hold("commit", role="engine", model="a")
    await there.apply(there.model("a", **(fields | {"kv_cache_bytes": "4MiB"})), there.model("b", **fields))
    await commit.reached()
    assert ledger.holding("b#1").kv_bytes == squeezed
    commit.release()
    await until(lambda: ledger.holding("b#1").kv_bytes == 64 * MIB, "the other pool takes what came free")


async def test_an_engine_that_dies_before_it_confirms_leaves_nothing_behind(serving):
    there = await serving(kv_cache_bytes="64MiB", max_batch=4096)
    commit = there.stage.hold("commit", role="engine")
    await there.apply(there.model("a", kv_cache_bytes="16MiB", max_batch=4096))
    (await commit.reached()).say("exit", status=1)
    await until(lambda: there.state("a") == "serving" and there.unit("a").serving.number == 2, "it serves again")
    assert set(there.house.ledger.held()) == {"a#2"}
    assert there.house.ledger.holding("a#2").kv_bytes == 16 * MIB


def test_what_stands_by_is_shown_and_decides_nothing():
    ledger = Ledger()
    ledger.enter("a#1", holding(50))
    ledger.stand_by("spare", holding(0, weights=0, working=170))
    assert ledger.taken_bytes("cpu:0") == 160 * MIB
    assert list(ledger.held()) == ["a#1"]
    assert ledger.view()["spare"]["working"] == 170 * MIB
    assert (ledger.by_use("cpu:0")["working"], ledger.by_use("cpu:0")["spare"]) == (10 * MIB, 170 * MIB)
    assert ledger.leave("spare").working_bytes == 170 * MIB
    assert (list(ledger.shown()), ledger.standing_by()) == (["a#1"], [])


def test_what_was_learnt_anew_leaves_what_is_claimed_as_it_was():
    ledger = Ledger()
    ledger.enter("a#1", holding(50))
    ledger.claim("a#1", 1, holding(70, working=15))
    assert ledger.learn("a#1", 20 * MIB, 0)
    assert not ledger.learn("a#1", 20 * MIB, 0)
    assert ledger.holding("a#1") == holding(70, working=20)
    ledger.drop("a#1", 1)
    assert ledger.holding("a#1") == holding(50, working=20)
    assert not ledger.learn("a#2", 20 * MIB, 0)
