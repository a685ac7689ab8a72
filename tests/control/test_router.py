"""Routing and leases against a text process played by the test over a real socket."""

import asyncio

import pytest
from support.fake_text import LIMITS, FakeText

from halogend.control.requests import InferenceRequest, RequestError, SamplingChoice
from halogend.control.route import RouteSettings
from halogend.control.router import Router
from halogend.wire.failure import Failure
from halogend.wire.policy import Caller
from halogend.wire.requests import Accepted, Delta, Finished, Sampling, TextPrompt, Usage

DEFAULTS = Sampling(
    temperature=0.6,
    top_p=0.85,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    seed=0,
)


def settings(*aliases, weight=1.0, max_queue=8, queue_timeout_s=5.0, classes=()):
    return RouteSettings(
        aliases=aliases,
        weight=weight,
        sampling=DEFAULTS,
        limits=LIMITS,
        max_queue=max_queue,
        queue_timeout_s=queue_timeout_s,
        classes=classes,
    )


def request(model="m", **sampling):
    return InferenceRequest(model=model, prompt=TextPrompt(text="Hi"), sampling=SamplingChoice(**sampling))


@pytest.fixture
async def serving():
    """A factory: a generation that serves in `router`, and the text process behind it."""
    made = []

    async def make(router, name="m", *aliases, number=1, **more):
        text = FakeText()
        generation = await text.generation(name, number)
        made.append((text, generation))
        router.open(name, settings(*aliases, **more))
        router.switch(name, generation, settings(*aliases, **more))
        return text, generation

    yield make
    for text, generation in made:
        generation.replicas[0].client.close()
        await text.close()


async def collect(answer):
    return [event async for event in answer.events()]


def texts(events):
    return "".join(event.text for event in events if isinstance(event, Delta))


async def test_events_come_in_order_and_the_lease_ends_with_the_last(serving):
    router = Router()
    text, generation = await serving(router)
    answer = await router.submit(request())
    (sent,) = await text.until_submitted(1)
    assert len(generation.leases) == 1
    text.accept(sent)
    text.token(sent, "a")
    text.token(sent, "b")
    text.finish(sent)
    events = await collect(answer)
    assert [type(event) for event in events] == [Accepted, Delta, Delta, Finished]
    assert texts(events) == "ab"
    assert not generation.leases


@pytest.fixture
async def reading(serving):
    """A factory: an answer that has begun with `a`, a way to send it another token, and what `events` brings of it."""
    router, tasks = Router(), []
    text, _ = await serving(router)

    async def read(answer, told):
        async for event in answer.events():
            told.put_nowait(event.text if isinstance(event, Delta) else type(event).__name__)

    async def make():
        answer, told = await router.submit(request()), asyncio.Queue()
        sent = (await text.until_submitted(len(tasks) + 1))[-1]
        tasks.append(asyncio.create_task(read(answer, told)))
        text.accept(sent)
        text.token(sent, "a")
        assert [await told.get(), await told.get()] == ["Accepted", "a"]
        return answer, lambda word: text.token(sent, word) if word else text.finish(sent), told

    yield make
    await asyncio.gather(*tasks)


async def test_a_tap_takes_what_nothing_waits_before_and_leaves_the_rest_to_events(reading):
    answer, send, told = await reading()
    taken = []
    answer.tap = lambda event: event.text != "left" and taken.append(event.text) is None
    for word in ("b", "left"):
        send(word)
    assert await told.get() == "left"
    send("c")
    send("")
    assert await told.get() == "Finished"
    assert taken == ["b", "c"]


async def test_a_tap_takes_nothing_before_what_waits(reading):
    answer, send, told = await reading()
    answer._push(Delta(id=1, text="waits", tokens=1))
    answer.tap = lambda event: event.text == "comes"
    answer._take(answer._epoch, Delta(id=1, text="comes", tokens=1))
    send("")
    assert [await told.get() for _ in range(3)] == ["waits", "comes", "Finished"]


async def test_a_tap_that_fails_is_its_own_requests_fault(reading):
    answer, send, told = await reading()
    _, send_other, told_other = await reading()

    def fail(event):
        raise ZeroDivisionError(event.text)

    answer.tap = fail
    for word in ("b", ""):
        send(word)
        send_other(word)
    assert [await told.get(), await told.get()] == ["b", "Finished"]
    assert [await told_other.get(), await told_other.get()] == ["b", "Finished"]


async def test_the_request_wins_over_the_models_defaults_and_the_seed_is_kept(serving):
    router = Router()
    text, _ = await serving(router)
    await router.submit(request(temperature=0.0, seed=42))
    await router.submit(request())
    first, second = await text.until_submitted(2)
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.seed) == (0.0, 0.85, 42)
    assert second.sampling.temperature == 0.6


async def test_an_unknown_model_is_refused_with_the_names_that_are_known(serving):
    router = Router()
    await serving(router, "m", "alias")
    with pytest.raises(RequestError, match=r"no model is named 'x'; known: alias, m") as refused:
        await router.submit(request("x"))
    assert refused.value.code == "model_not_found"


async def test_closing_an_answer_aborts_it_once(serving):
    router = Router()
    text, generation = await serving(router)
    answer = await router.submit(request())
    answer.close()
    answer.close()
    assert await text.until_aborted(1) == [1]
    assert not generation.leases


async def test_a_request_without_a_token_goes_over_at_a_switch_and_one_with_tokens_stays(serving):
    router = Router()
    old, old_generation = await serving(router)
    begun, waiting = await router.submit(request(seed=1)), await router.submit(request(seed=2))
    first, second = await old.until_submitted(2)
    old.accept(first)
    old.accept(second)
    old.token(first, "old ")
    events = begun.events()
    assert [type(await anext(events)), type(await anext(events))] == [Accepted, Delta]
    new, _ = await serving(router, number=2)
    (moved,) = await new.until_submitted(1)
    assert moved.sampling.seed == 2
    assert await old.until_aborted(1) == [second.id]
    assert len(old_generation.leases) == 1
    old.token(second, "must never be seen")
    new.accept(moved)
    new.token(moved, "new")
    new.finish(moved)
    old.token(first, "end")
    old.finish(first)
    assert texts(await collect(waiting)) == "new"
    assert waiting.generation == 2
    assert texts([event async for event in events]) == "end"
    await old_generation.drained()


async def test_a_request_without_a_token_survives_one_death(serving):
    waiting = asyncio.Event()
    router = Router(on_waiting=lambda name, count: waiting.set())
    text, _ = await serving(router)
    answer = await router.submit(request())
    reading = asyncio.create_task(collect(answer))
    await text.until_submitted(1)
    text.die()
    await waiting.wait()  # nobody has told the router yet
    assert not router.ready("m")
    router.hold("m")
    second, _ = await serving(router, number=2)
    (sent,) = await second.until_submitted(1)
    second.accept(sent)
    second.token(sent, "x")
    second.finish(sent)
    assert texts(await reading) == "x"


async def test_the_second_death_is_told(serving):
    router = Router()
    text, _ = await serving(router)
    reading = asyncio.create_task(collect(await router.submit(request())))
    (sent,) = await text.until_submitted(1)
    text.say(
        Finished(
            id=sent.id,
            reason="error",
            usage=Usage(prompt_tokens=0, completion_tokens=0),
            failure=Failure(code="engine_died", message="the engine is gone"),
        )
    )
    second, _ = await serving(router, number=2)
    await second.until_submitted(1)
    second.die()
    (end,) = await reading
    assert end.failure.code == "engine_died"


async def test_a_request_with_tokens_gets_a_typed_end_when_its_engine_dies(serving):
    router = Router()
    text, generation = await serving(router)
    answer = await router.submit(request())
    (sent,) = await text.until_submitted(1)
    text.accept(sent)
    text.token(sent, "x")
    events = answer.events()
    await anext(events)
    await anext(events)
    text.die()
    end = await anext(events)
    assert (end.reason, end.failure.code) == ("error", "engine_died")
    assert not generation.leases


async def test_while_nothing_serves_requests_wait_and_then_go_on(serving):
    router = Router()
    router.open("m", settings())
    waiting = asyncio.create_task(router.submit(request()))
    await asyncio.sleep(0)
    assert router.waiting("m") == 1
    text, _ = await serving(router)
    await waiting
    assert len(await text.until_submitted(1)) == 1
    assert router.waiting("m") == 0


async def test_waiting_has_a_bound_and_a_deadline():
    router = Router()
    router.open("m", settings(max_queue=1, queue_timeout_s=0.05))
    first = asyncio.create_task(router.submit(request()))
    await asyncio.sleep(0)
    with pytest.raises(RequestError) as full:
        await router.submit(request())
    assert (full.value.code, full.value.retry_after_s) == ("queue_full", 1)
    with pytest.raises(RequestError) as late:
        await first
    assert late.value.code == "queue_timeout"


async def test_a_model_that_was_given_up_answers_at_once_with_the_reason():
    router = Router()
    router.open("m", settings())
    waiting = asyncio.create_task(router.submit(request()))
    await asyncio.sleep(0)
    router.give_up("m", "it did not load")
    for refused in (waiting, router.submit(request())):
        with pytest.raises(RequestError, match="it did not load") as error:
            await refused
        assert error.value.code == "not_serving"


async def test_a_removed_model_is_unknown_and_its_waiters_are_told():
    router = Router()
    router.open("m", settings())
    waiting = asyncio.create_task(router.submit(request()))
    await asyncio.sleep(0)
    router.close("m")
    with pytest.raises(RequestError):
        await waiting
    with pytest.raises(RequestError, match="known: none"):
        await router.submit(request())


async def test_two_models_share_an_alias_by_weight(serving):
    router = Router()
    x, _ = await serving(router, "x", "both", weight=3.0)
    y, _ = await serving(router, "y", "both", weight=1.0)
    for _ in range(8):
        await router.submit(request("both"))
    await x.until_submitted(6)
    await y.until_submitted(2)
    assert (len(x.submitted), len(y.submitted)) == (6, 2)


async def test_an_old_name_is_accepted_until_its_generation_is_gone(serving):
    router = Router()
    await serving(router, "m", "old-path")
    new, _ = await serving(router, "m", "new-path", number=2)
    for name in ("m", "new-path", "old-path"):
        await router.submit(request(name))
    assert len(await new.until_submitted(3)) == 3
    router.forget_old_names("m")
    with pytest.raises(RequestError):
        await router.submit(request("old-path"))


async def test_an_answer_ended_by_us_says_so_and_nothing_comes_after(serving):
    router = Router()
    text, generation = await serving(router)
    answer = await router.submit(request())
    (sent,) = await text.until_submitted(1)
    answer.end("draining", "over")
    text.token(sent, "late")
    (end,) = await collect(answer)
    assert end.failure.code == "draining"
    assert await text.until_aborted(1) == [sent.id]
    await generation.drained()


async def test_shutting_down_refuses_what_waits_and_what_comes():
    router = Router()
    router.open("m", settings())
    waiting = asyncio.create_task(router.submit(request()))
    await asyncio.sleep(0)
    router.shut()
    with pytest.raises(RequestError) as refused:
        await waiting
    assert refused.value.code == "shutting_down"
    assert not router.ready(None)


async def test_readiness_follows_the_documents_rule(serving):
    router = Router()
    await serving(router, "x")
    router.open("y", settings())
    assert router.ready(None)
    assert router.ready("x")
    assert not router.ready("y")
    assert not router.ready("z")
    router.all_must_serve = True
    assert not router.ready(None)


def from_caller(klass, allowed=None, key=""):
    caller = Caller(key=key, weight=2.0, klass=klass, session="s")
    return InferenceRequest(model="m", prompt=TextPrompt(text="Hi"), caller=caller, classes=allowed)


async def test_a_class_must_be_one_of_the_model_and_of_the_key(serving):
    router = Router()
    text, _ = await serving(router, classes=("gold", "silver"))
    with pytest.raises(RequestError, match="no class 'bronze'; its classes are gold, silver") as unknown:
        await router.submit(from_caller("bronze", frozenset({"bronze"})))
    assert (unknown.value.code, unknown.value.param) == ("unknown_class", "X-Halogen-Class")
    with pytest.raises(RequestError, match=r"'team-a' may not name the class 'gold'.*: silver") as refused:
        await router.submit(from_caller("gold", frozenset({"silver", "other"}), "team-a"))
    assert refused.value.code == "class_not_allowed"
    for number, allowed in enumerate((None, frozenset({"gold"})), 1):
        await router.submit(from_caller("gold", allowed, "team-a"))
        sent = (await text.until_submitted(number))[-1]
        assert sent.caller == Caller(key="team-a", weight=2.0, klass="gold", session="s")


async def test_classes_change_with_the_settings_and_a_model_without_any_says_so(serving):
    router = Router()
    await serving(router, classes=("gold",))
    router.set_settings("m", settings())
    with pytest.raises(RequestError, match="it has no classes"):
        await router.submit(from_caller("gold"))
