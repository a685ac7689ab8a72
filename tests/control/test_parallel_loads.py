"""Several models on their way at once: how many load side by side, and that none waits for another's load."""

import time

from support.played.world import document, failure_of, reached, until

from halogend.control.receipts import Milestone

ROOM = 604 << 20  # two generations of the played models, not three


async def test_loads_go_one_after_the_other_unless_more_are_allowed(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine")
    receipt = world.edit(document(world.model("a"), world.model("b"), world.model("c")))
    await load.reached()
    await until(lambda: world.unit("c").goal is not None, "c is wanted")
    assert len(load.calls) == 1
    load.release()
    await reached(receipt)
    assert receipt.outcome == "applied"


async def test_as_many_load_at_once_as_the_document_allows_and_a_change_of_it_is_live(serving):
    world = await serving()
    models = [world.model(name) for name in "abcd"]
    load = world.stage.hold("load", role="engine")
    first = world.edit(document(*models, reload={"max_parallel_loads": 2}))
    await load.reached(2)
    assert first.server_changes[-1]["field"] == "reload.max_parallel_loads"
    assert sorted(world.house.ledger.held()) == ["a#1", "b#1", "c#1"]
    second = world.edit(document(*models, reload={"max_parallel_loads": 3}))
    await load.reached(3)
    load.release()
    await reached(first)
    await reached(second)
    assert (first.outcome, second.outcome) == ("applied", "applied")
    assert [world.state(name) for name in "abcd"] == ["serving"] * 4


async def test_l14_what_serves_or_loads_is_never_a_victim_of_another(serving):
    world = await serving(ROOM)
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a"), world.model("b")))
    pid = (await load.reached()).pid
    models = [world.model(name) for name in "abc"]
    for how in ({}, {"reload": {"atomic": True}}, {"reload": {"max_parallel_loads": 3}}):
        refused = await world.apply(*models, **how)
        assert refused.outcome == "rejected"
    assert (pid in world.children(), world.state("a")) == (True, "serving")
    load.release()
    await reached(first)
    assert first.outcome == "applied"
    assert (world.stage.loads("b"), world.stage.loads("c")) == (1, 0)


async def test_l13_an_edit_of_one_model_while_another_loads_applies_within_a_second(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    first = world.edit(document(world.model("a"), world.model("b")))
    await load.reached()
    began = time.monotonic()
    second = world.edit(document(world.model("a", max_batch=7, sampling={"temperature": 0.1}), world.model("b")))
    await reached(second, Milestone.ACCEPTED)
    await until(lambda: second.models["a"].outcome, "the edit is in force")
    took_s = time.monotonic() - began
    assert second.models["a"].outcome == "applied"
    assert world.unit("a").serving.engine_limits.max_batch == 7
    assert world.router.route("a").settings.sampling.temperature == 0.1
    assert (first.outcome, second.outcome) == (None, None)
    assert took_s < 1
    assert failure_of(await world.ask("a")) is None
    load.release()
    await reached(second)
