"""The stand-in for the API server, running in the test's event loop."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from fakekube import FakeKube
from support.kube_samples import Wire, widget_crd


@pytest.fixture
async def kube() -> AsyncIterator[FakeKube]:
    async with FakeKube() as kube:
        yield kube


@pytest.fixture
async def widgets(kube: FakeKube) -> FakeKube:
    """The same stand-in, with a custom kind of the tests' own."""
    kube.objects.create(widget_crd())
    return kube


@pytest.fixture
async def wire(kube: FakeKube) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        yield Wire(session, kube.url)
