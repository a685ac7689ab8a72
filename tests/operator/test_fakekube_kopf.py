"""kopf runs against the stand-in as against an API server: it lists, watches, and comes back after a cut and a 410."""

import asyncio
import contextlib

import kopf
import pytest
from support.kube_samples import widget


@pytest.fixture
def running(widgets):
    """Runs an operator that notes (type, name) of each event of a Widget; gives the list, and when it has begun."""

    @contextlib.asynccontextmanager
    async def run(namespaces=(), **peering):
        registry, settings, stop, ready = (
            kopf.OperatorRegistry(),
            kopf.OperatorSettings(),
            asyncio.Event(),
            asyncio.Event(),
        )
        settings.watching.reconnect_backoff = 0
        settings.networking.error_backoffs = [0]
        for name, value in peering.items():
            setattr(settings.peering, name, value)
        heard = []

        @kopf.on.login(registry=registry)
        def login(**_):
            return kopf.ConnectionInfo(server=widgets.url)

        @kopf.on.event("test.dev", "v1", "widgets", registry=registry)
        def hear(type, name, **_):  # noqa: A002 kopf's names
            heard.append((type, name))
            widgets.store.wake_onlookers()

        operator = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=settings, stop_flag=stop, ready_flag=ready, namespaces=namespaces,
                clusterwide=not namespaces, standalone=not peering, identity="me",
            )
        )  # fmt: skip
        try:
            yield heard
        finally:
            stop.set()
            await operator

    return run


def _watched(kube):
    return [watch for watch in kube.watches if watch.kind.kind == "Widget"]


async def test_an_operator_lists_then_watches(widgets, running):
    widgets.objects.create(widget("old"))
    async with running() as heard:
        await widgets.until(lambda: _watched(widgets))
        widgets.objects.create(widget("new"))
        widgets.objects.delete("Widget", "new")
        await widgets.until(lambda: len(heard) >= 2)
    assert heard[0] == (None, "old")
    assert heard[-1] == ("DELETED", "new")
    assert "annotations" not in widgets.objects.get("Widget", "old")["metadata"]
    assert [call for call in widgets.calls if call.is_write] == []


@pytest.mark.parametrize("harm", ["cut", "abrupt", "expired"])
async def test_an_operator_comes_back_to_its_watch(widgets, running, harm):
    async with running() as heard:
        await widgets.until(lambda: _watched(widgets))
        before = len([call for call in widgets.calls if (call.verb, call.kind) == ("list", "Widget")])
        if harm == "expired":
            widgets.expire_watches("Widget")
        else:
            widgets.cut_watches("Widget", abruptly=harm == "abrupt")
        await widgets.until(lambda: not _watched(widgets) or _watched(widgets)[0].is_cut is False)
        widgets.objects.create(widget())
        await widgets.until(lambda: any(name == "w" for _, name in heard))
    after = len([call for call in widgets.calls if (call.verb, call.kind) == ("list", "Widget")])
    assert after - before == (1 if harm == "expired" else 0)


async def test_operators_see_each_other_by_peering(widgets, running):
    widgets.objects.create({"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "ours"}})
    async with running(name="ours", mandatory=True, clusterwide=True, priority=5):
        await widgets.until(lambda: widgets.objects.get("ClusterKopfPeering", "ours").get("status"))
        status = widgets.objects.get("ClusterKopfPeering", "ours")["status"]
        assert status["me"]["priority"] == 5
    assert not widgets.objects.get("ClusterKopfPeering", "ours").get("status")


async def test_an_operator_of_one_namespace_finds_it(widgets, running):
    widgets.objects.create(widget())
    async with running(namespaces=["default"]) as heard:
        await widgets.until(lambda: heard)
    assert heard == [(None, "w")]
