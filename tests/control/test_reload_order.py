"""Several changes at once: what goes on, what gives way, what waits, and what comes back."""

import pytest
from support.played.world import collect, document, failure_of, reached, until

from halogend.control.receipts import Milestone

REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
ROOM = 692 << 20  # two generations of the played models, not three


async def _streams(world, model="a", prompt="slow"):
    """A request that has a token and will not end before it is told to."""
    slow = world.stage.hold("generate", prompt=prompt)
    answer = await world.submit(model, prompt, 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    return answer, slow


# --- L1, L6: newer changes ------------------------------------------------------------------------------


async def test_l1_ten_reloads_at_once_are_covered_by_their_receipts(serving):
    world = await serving()
    receipts = [world.edit(document(world.model("a", f"m{index}"))) for index in range(10)]
    for receipt in receipts:
        await reached(receipt)
    assert {receipt.revision for receipt in receipts} == {world.reconciler.accepted.revision}
    assert {receipt.outcome for receipt in receipts} <= {"applied", "unchanged"}
    assert world.status()["models"]["a"]["path"].endswith("m9.gguf")
    assert world.stage.loads() == 2
    assert world.status()["settled"]


async def test_l1_ten_accepted_contents_end_with_the_last_and_every_receipt_closes(serving):
    world = await serving()
    contents = [world.model("a", f"m{index}") for index in range(10)]
    receipts = [await world.apply(content, until=Milestone.ACCEPTED) for content in contents]
    for receipt in receipts:
        await reached(receipt)
    assert len({receipt.revision for receipt in receipts}) == 10
    assert receipts[-1].outcome == "applied"
    assert {receipt.outcome for receipt in receipts[:-1]} <= {"applied", "superseded"}
    assert world.status()["models"]["a"]["path"].endswith("m9.gguf")
    await until(lambda: len(world.children()) == 2, "only the last generation is left")
    assert list(world.house.ledger.view()) == [f"a#{world.unit('a').serving.number}"]
    assert world.status()["settled"]


async def test_l6_a_load_that_is_no_longer_wanted_is_cancelled_and_its_memory_comes_back(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a", "b")))
    pid = (await load.reached()).pid
    assert set(world.house.ledger.view()) == {"a#1", "a#2"}
    second = await world.apply(world.model("a", "c"))
    await reached(first)
    assert (first.outcome, second.outcome) == ("superseded", "applied")
    assert pid not in world.children()
    assert set(world.house.ledger.view()) == {"a#3"}
    assert [world.stage.loads(each) for each in "abc"] == [1, 1, 1]


async def test_l6_a_load_goes_on_under_a_live_edit_and_counts_for_it(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a", "b")))
    await load.reached()
    second = await world.apply(world.model("a", "b", max_batch=7), until=Milestone.ACCEPTED)
    load.release()
    await reached(first)
    await reached(second)
    assert (first.outcome, second.outcome) == ("applied", "applied")
    assert world.stage.loads("b") == 1
    assert world.unit("a").serving.engine_limits.max_batch == 7


async def test_l6_a_load_its_live_edit_and_the_way_back_load_nothing_more(serving):
    world = await serving()
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a", "b")))
    await load.reached()
    second = await world.apply(world.model("a", "b", max_batch=7), until=Milestone.ACCEPTED)
    back = await world.apply(world.model("a"))
    await reached(first)
    await reached(second)
    assert [r.outcome for r in (first, second, back)] == ["superseded", "superseded", "applied"]
    assert [world.stage.loads(each) for each in "ab"] == [1, 1]
    await world.comes_back_to(before, "active", "metrics")
    assert world.status()["settled"]


# --- L13: other models ------------------------------------------------------------------------------------


async def test_l13_a_broken_model_blocks_no_other_and_can_be_removed(serving):
    world = await serving()
    world.stage.order("load", where={"role": "engine", "model": "b"}, **REFUSED)
    receipt = await world.apply(world.model("a", max_batch=7), world.model("b"), world.model("c"))
    assert receipt.outcome == "partially_applied"
    assert {name: r.outcome for name, r in receipt.models.items()} == {"a": "applied", "b": "failed", "c": "applied"}
    assert [world.state(name) for name in "abc"] == ["serving", "failed", "serving"]
    assert "no memory" in world.status()["models"]["b"]["trouble"]
    assert not world.status()["settled"]
    live = await world.apply(world.model("a", max_batch=8), world.model("b"), world.model("c"))
    assert live.models["a"].outcome == "applied"
    removed = await world.apply(world.model("a", max_batch=8), world.model("c"))
    assert removed.outcome == "applied"
    await until(lambda: "b" not in world.house.units, "nothing is left of it")
    assert not [line for line in world.series("") if 'model="b"' in line]
    assert world.router.route("b") is None
    assert world.status()["settled"]


async def test_l13_a_live_change_does_not_wait_for_another_models_load(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a"), world.model("b")))
    await load.reached()
    second = await world.apply(world.model("a", max_batch=7), world.model("b"), until=Milestone.ACCEPTED)
    await until(lambda: second.models["a"].outcome, "the live change is made")
    assert second.outcome is None
    load.release()
    await reached(first)
    await reached(second)
    assert second.outcome == "applied"


# --- removal ----------------------------------------------------------------------------------------------


async def test_removal_while_the_load_runs_ends_it(serving):
    world = await serving()
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a"), world.model("b")))
    await load.reached()
    second = await world.apply(world.model("a"))
    await reached(first)
    assert (first.outcome, second.outcome) == ("superseded", "applied")
    await world.comes_back_to(before, "active", "metrics")
    assert not [line for line in world.series("") if 'model="b"' in line]


async def test_removal_while_the_load_waits_its_turn_ends_the_wait(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a"), world.model("b"), world.model("c")))
    await load.reached()
    second = await world.apply(world.model("a"), world.model("b"), until=Milestone.ACCEPTED)
    await until(lambda: "c" not in world.house.units, "c is gone")
    load.release()
    await reached(first)
    await reached(second)
    assert second.outcome == "applied"
    assert world.stage.loads("c") == 0
    assert set(world.house.ledger.view()) == {"a#1", "b#1"}


async def test_a_load_waits_for_memory_that_drains_and_a_removal_ends_that_wait(serving):
    world = await serving(ROOM)
    answer, slow = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    waits = world.edit(document(world.model("a", "b"), world.model("c")))
    await reached(waits, Milestone.ACCEPTED)
    gone = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    assert (waits.outcome, gone.outcome) == ("superseded", "applied")
    again = world.edit(document(world.model("a", "b"), world.model("c")))
    await reached(again, Milestone.ACCEPTED)
    assert world.stage.loads("c") == 0
    slow.release("finish")
    await reached(again)
    assert again.outcome == "applied"
    assert failure_of(await collect(answer)) is None


async def test_a_removed_model_honours_its_own_drain_timeout(serving):
    world = await serving(reload={"drain_timeout_s": 0.25})
    answer, _ = await _streams(world)
    receipt = await world.apply(reload={"drain_timeout_s": 600})
    assert failure_of(await collect(answer)) == "draining"
    step = next(step for step in receipt.models["a"].steps if step.name == "drain")
    assert (step.detail["limit_s"], step.detail["ended"]) == (0.25, 1)
    await until(lambda: not world.house.units, "nothing is left of it")
    assert world.house.ledger.view() == {}
    assert not [line for line in world.series("") if 'model="a"' in line]


async def test_a_model_added_again_while_its_old_generation_drains_counts_on(serving):
    world = await serving()
    answer, slow = await _streams(world)
    removed = await world.apply(until=Milestone.SERVING)
    assert removed.outcome == "applied"
    assert world.state("a") == "removed"
    added = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    assert added.outcome == "applied"
    shown = world.status()["models"]["a"]
    assert (shown["state"], shown["serving"]["generation"]) == ("serving", 2)
    assert [each["generation"] for each in shown["draining"]] == [1]
    assert set(world.house.ledger.view()) == {"a#1", "a#2"}
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    await reached(removed)
    await reached(added)
    assert set(world.house.ledger.view()) == {"a#2"}
    assert world.series("generation_state") == {
        'halogen_generation_state{generation="2",model="a",state="serving"} 1.0'
    }
    assert world.status()["settled"]


# --- L7: draining -----------------------------------------------------------------------------------------


async def test_l7_at_most_one_old_generation_and_a_stream_ends_where_it_began(serving):
    world = await serving()
    answer, slow = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    third = world.edit(document(world.model("a", "c")))
    await reached(third, Milestone.ACCEPTED)
    assert failure_of(await world.ask("a")) is None
    assert (world.stage.loads("c"), len(world.unit("a").draining)) == (0, 1)
    slow.release("finish")
    await reached(third)
    assert third.outcome == "applied"
    assert answer.generation == 1
    assert failure_of(await collect(answer)) is None


async def test_l7_the_drain_deadline_ends_streams_honestly(serving):
    world = await serving(reload={"drain_timeout_s": 0})
    answer, _ = await _streams(world)
    receipt = await world.apply(world.model("a", "b", reload={"drain_timeout_s": 600}))
    assert receipt.outcome == "applied"
    assert failure_of(await collect(answer)) == "draining"
    await until(lambda: len(world.children()) == 2, "the old generation is gone")


async def test_a_request_without_a_token_goes_over_at_the_switch(serving):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow", times=1)
    answer = await world.submit("a", "slow")
    await slow.reached()
    receipt = await world.apply(world.model("a", "b"))
    assert receipt.outcome == "applied"
    assert failure_of(await collect(answer)) is None
    assert answer.generation == 2


async def test_a_request_that_the_new_limits_are_too_small_for_is_refused_alone(serving):
    world = await serving()
    slow = world.stage.hold("generate", model="a")
    long, short = await world.submit("a", "long"), await world.submit("a", "short")
    await slow.reached(2)
    refusal = {"code": "prompt_too_long", "message": "too long by 3"}
    world.stage.order("submit", "fail", where={"role": "text", "model": "b", "prompt": "long"}, **refusal)
    receipt = await world.apply(world.model("a", "b"))
    assert receipt.outcome == "applied"
    assert [failure_of(await collect(each)) for each in (long, short)] == ["prompt_too_long", None]
    assert (long.generation, short.generation) == (2, 2)


@pytest.mark.parametrize("reloads", [5, pytest.param(50, marks=pytest.mark.slow)])
async def test_l7_reloads_leave_ledger_units_tasks_files_and_processes_flat(serving, reloads):
    world = await serving()
    await world.apply(world.model("a", "b"))
    await world.apply(world.model("a"))
    await until(lambda: not world.unit("a").reclaims, "all is quiet")
    before = world.dump()
    for index in range(reloads):
        receipt = await world.apply(world.model("a", "b" if index % 2 == 0 else "c"))
        assert receipt.outcome == "applied"
    await world.apply(world.model("a"))
    await world.comes_back_to({**before, "ledger": _renumbered(before["ledger"], 4 + reloads)}, *_OF_A_GENERATION)
    assert len(world.children()) == len(before["children"]) == 2


_OF_A_GENERATION = ("active", "metrics", "routes", "served", "units", "children")


def _renumbered(ledger, number):
    return {f"a#{number}": holding for holding in ledger.values()}


# --- replace ----------------------------------------------------------------------------------------------

REPLACE = {"reload": {"strategy": "replace"}}


async def test_replace_lets_requests_wait_and_go_over(serving):
    world = await serving(**REPLACE)
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b", **REPLACE)))
    await load.reached()
    assert set(world.house.ledger.view()) == {"a#2"}
    assert world.state("a") == "restarting"
    assert not world.status()["settled"]
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    load.release()
    assert failure_of(await asked) is None
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert world.status()["settled"]


async def test_replace_that_fails_brings_the_old_one_back(serving):
    world = await serving(**REPLACE)
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b", **REPLACE)))
    await load.reached()
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    load.release(**REFUSED)
    assert failure_of(await asked) is None
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert world.status()["models"]["a"]["path"].endswith("a.gguf")
    assert (world.state("a"), world.status()["models"]["a"]["trouble"]) == ("serving", None)
    assert not world.status()["settled"]
    assert world.router.route("a").settings == before["routes"]["a"][0]


async def test_replace_that_fails_with_no_way_back_tells_who_waits_and_a_new_document_leaves_it(serving):
    world = await serving(**REPLACE)
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b", **REPLACE)))
    await load.reached()
    back = world.stage.order("load", where={"role": "engine", "model": "a"}, **REFUSED)
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    load.release(**REFUSED)
    assert await asked == "not_serving"
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert world.state("a") == "failed"
    assert "did not come back" in world.status()["models"]["a"]["trouble"]
    assert await world.asks("a") == "not_serving"
    back.release()
    assert (await world.apply(world.model("a", **REPLACE))).outcome == "applied"
    assert failure_of(await world.ask("a")) is None
    assert world.status()["settled"]


async def test_replace_given_up_by_a_newer_document_serves_the_old_spec_again(serving):
    world = await serving(**REPLACE)
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a", "b", **REPLACE)))
    await load.reached()
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    back = await world.apply(world.model("a", **REPLACE))
    await reached(first)
    assert (first.outcome, back.outcome) == ("superseded", "applied")
    assert failure_of(await asked) is None
    assert world.status()["models"]["a"]["path"].endswith("a.gguf")
    assert set(world.house.ledger.view()) == {"a#3"}
