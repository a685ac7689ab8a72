"""What the operator's own client makes of an API server's answers."""

import aiohttp
import pytest
from halogen_operator.kube import ConflictError, Kube, KubeError
from halogen_operator.resources import KINDS

MODEL = {
    "apiVersion": "halogen.dev/v1alpha1",
    "kind": "HalogenModel",
    "metadata": {"name": "chat"},
    "spec": {"model": "/models/a.gguf", "auth": {"none": True}},
}


async def test_o3_a_status_of_an_object_that_changed_meanwhile_is_a_conflict(kube):
    """The server says 422, and not a word of the test that failed. A status that breaks a rule is a 422 too."""
    old = kube.objects.create(MODEL)
    kube.objects.patch("HalogenModel", "chat", {"spec": {"max_batch": 7}})
    async with aiohttp.ClientSession() as session:
        client = Kube(session, kube.url)
        with pytest.raises(ConflictError):
            await client.patch_status(old, {"observedGeneration": 1})
        new = kube.objects.get("HalogenModel", "chat")
        with pytest.raises(KubeError) as caught:
            await client.patch_status(new, {"observedGeneration": "one"})
        assert caught.value.status == 422
        assert not isinstance(caught.value, ConflictError)
        assert (await client.patch_status(new, {"observedGeneration": 2}))["status"] == {"observedGeneration": 2}


async def test_a_server_that_says_nothing_is_told_in_words(kube, monkeypatch):
    monkeypatch.setattr("halogen_operator.kube._LIMIT", aiohttp.ClientTimeout(total=0.1))
    kube.faults.delay(30.0, kind="Service")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(KubeError, match=r"^0 NoAnswer: get /api/v1/.*/services/chat: TimeoutError, 0\.\d s$"):
            await Kube(session, kube.url).get(KINDS["Service"], "default", "chat")
