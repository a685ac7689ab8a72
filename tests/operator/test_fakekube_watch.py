"""Watches in the stand-in: from where they begin, what they see, bookmarks, 410, cuts, silence."""

import asyncio
import contextlib
import json

import aiohttp
import pytest
from support.kube_samples import config_map, widget_crd


@pytest.fixture
def watching(kube, wire):
    """Opens a watch and gives an iterator of its (type, name or code) pairs."""

    @contextlib.asynccontextmanager
    async def begin(**params):
        url = kube.url + wire.path("ConfigMap")
        async with wire.session.get(url, params={"watch": "true"} | params) as answer:
            assert answer.status == 200

            async def events():
                async for line in answer.content:
                    event = json.loads(line)
                    body = event["object"]
                    yield event["type"], body.get("code") or body["metadata"].get("name"), body

            yield events()

    return begin


async def _next(events, count=1):
    async with asyncio.timeout(5):
        return [(await anext(events))[:2] for _ in range(count)]


async def test_a_watch_goes_on_from_its_revision(kube, watching):
    kube.objects.create(config_map("before"))
    version = str(kube.store.revision)
    kube.objects.create(config_map("a", key="1"))
    async with watching(resourceVersion=version) as events:
        assert await _next(events) == [("ADDED", "a")]
        kube.objects.patch("ConfigMap", "a", {"data": {"key": "2"}})
        kube.objects.delete("ConfigMap", "a")
        assert await _next(events, 2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_deleted_object_carries_the_revision_of_its_deletion(kube, watching):
    kube.objects.create(config_map("a"))
    async with watching(resourceVersion=str(kube.store.revision)) as events:
        kube.objects.delete("ConfigMap", "a")
        _, _, body = await anext(events)
        assert body["metadata"]["resourceVersion"] == str(kube.store.revision)


async def test_without_a_revision_a_watch_begins_with_what_is_there(kube, watching):
    kube.objects.create(config_map("a"))
    async with watching() as events:
        assert await _next(events) == [("ADDED", "a")]


async def test_initial_events_end_with_a_bookmark_that_says_so(kube, wire, watching):
    kube.objects.create(config_map("a"))
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with watching(**asked) as events:
        assert (await anext(events))[0] == "ADDED"
        kind, _, body = await anext(events)
        assert kind == "BOOKMARK"
        assert body["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    status, _ = await wire.get(wire.path("ConfigMap"), watch="true", sendInitialEvents="true")
    assert status == 422


async def test_what_begins_or_ceases_to_fit_a_selector_comes_and_goes(kube, watching):
    async with watching(labelSelector="app=a", resourceVersion=str(kube.store.revision)) as events:
        kube.objects.create(config_map("a"))
        kube.objects.patch("ConfigMap", "a", {"metadata": {"labels": {"app": "a"}}})
        kube.objects.patch("ConfigMap", "a", {"metadata": {"labels": {"app": "b"}}})
        assert await _next(events, 2) == [("ADDED", "a"), ("DELETED", "a")]


async def test_another_namespace_is_not_heard(kube, watching):
    kube.namespace("other")
    async with watching(resourceVersion=str(kube.store.revision)) as events:
        kube.objects.create(config_map("theirs", namespace="other"))
        kube.objects.create(config_map("ours"))
        assert await _next(events) == [("ADDED", "ours")]


async def test_bookmarks_go_to_those_who_asked(kube, watching):
    async with watching(allowWatchBookmarks="true", resourceVersion="0") as events, watching() as others:
        kube.bookmark()
        kind, _, body = await anext(events)
        assert (kind, body["metadata"]["resourceVersion"]) == ("BOOKMARK", str(kube.store.revision))
        kube.objects.create(config_map("a"))
        assert await _next(others) == [("ADDED", "a")]


async def test_bookmarks_come_by_themselves(watching, kube):
    kube._serving._bookmark_s = 0.01
    async with watching(allowWatchBookmarks="true") as events:
        assert [kind for kind, _ in await _next(events, 2)] == ["BOOKMARK", "BOOKMARK"]


async def test_a_revision_that_was_compacted_is_gone(kube, watching):
    kube.objects.create(config_map("a"))
    kube.store.compact()
    async with watching(resourceVersion="1") as events:
        assert await _next(events) == [("ERROR", 410)]
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_a_stream_can_expire_while_it_is_open(kube, watching):
    async with watching() as events:
        await kube.until(lambda: kube.watches) if not kube.watches else None
        kube.expire_watches("ConfigMap")
        assert await _next(events) == [("ERROR", 410)]


async def test_a_watch_ends_at_its_time(watching):
    async with watching(timeoutSeconds="0.05") as events:
        async with asyncio.timeout(5):
            assert [event async for event in events] == []


async def test_a_stream_can_be_cut(kube, watching):
    async with watching() as events:
        assert kube.cut_watches() == 1
        assert [event async for event in events] == []
    async with watching() as events:
        kube.cut_watches(abruptly=True)
        with pytest.raises(aiohttp.ClientError):
            await anext(events)


async def test_a_silent_stream_stays_open(kube, watching):
    async with watching(allowWatchBookmarks="true") as events, watching() as fresh:
        kube.watches[0].is_silent = True
        quiet = kube.watches[0]
        kube.bookmark()
        kube.objects.create(config_map("a"))
        assert await _next(fresh) == [("ADDED", "a")]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(events)
        assert quiet in kube.watches


async def test_what_a_stream_kept_to_itself_comes_later(kube, watching):
    async with watching(resourceVersion=str(kube.store.revision)) as events:
        kube.silence_watches("ConfigMap")
        kube.objects.create(config_map("a"))
        kube.objects.delete("ConfigMap", "a")
        kube.release_watches("ConfigMap")
        assert await _next(events, 2) == [("ADDED", "a"), ("DELETED", "a")]


async def test_with_its_kind_a_watch_ends(kube, wire):
    kube.objects.create(widget_crd())
    async with wire.session.get(kube.url + wire.path("Widget"), params={"watch": "true"}) as answer:
        kube.objects.delete("CustomResourceDefinition", "widgets.test.dev")
        async with asyncio.timeout(5):
            assert [line async for line in answer.content] == []
