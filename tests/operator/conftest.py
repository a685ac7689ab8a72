"""The stand-in for the API server, running in the test's event loop; models for the pods of end-to-end tests."""

from collections.abc import AsyncIterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for any user to read, with a.gguf and b.gguf, which answer differently."""
    from support.tiny_models import tiny_gemma3, tiny_llama  # torch, which no other test here waits for

    folder = tmp_path_factory.mktemp("models")
    tiny_llama(folder / "a.gguf", layers=2)
    tiny_gemma3(folder / "b.gguf", layers=2)
    folder.chmod(0o755)
    return folder
