"""Five hundred HalogenModels: how long a start takes, and that what is settled costs no write."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from fakekube import FakeKube
from halogen_operator.names import TEMPLATE_ANNOTATION
from support.operators import conditions, eventually, halogen_model, quick, running
from support.played_pods import free_port

COUNT = 500
WRITER = "halogen-operator"


@pytest.fixture
async def kube() -> AsyncIterator[FakeKube]:
    async with FakeKube() as made:
        for number in range(COUNT):
            made.objects.create(halogen_model(f"m{number:03}", replicas=0))
        yield made


def _reconciled(kube: FakeKube) -> bool:
    """Does every model say that it is as it was asked?"""
    return all(
        any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in body.get("status", {}).get("conditions", ())
        )
        for body in kube.store.all_of(("halogen.dev", "halogenmodels"))
    )


def _writes(kube: FakeKube) -> list[str]:
    return [f"{call.verb} {call.kind} {call.name}" for call in kube.calls if call.is_write and call.writer == WRITER]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_five_hundred_models_are_reconciled_at_start_and_then_left_alone(kube: FakeKube) -> None:
    settings = quick(kube.url, admin_port=free_port(), workers=8, look_again_s=30.0, follow_s=1.0)
    began = time.monotonic()
    async with running(settings):
        await eventually(lambda: _reconciled(kube), 300.0)
        made_s = time.monotonic() - began
    assert len(kube.objects.list("Deployment")) == COUNT
    print(f"\n{COUNT} models made, children and all, in {made_s:.1f} s with {len(_writes(kube))} writes")

    kube.calls.clear()
    began = time.monotonic()
    async with running(settings) as operator:
        looked = operator.started.metrics.looks
        await eventually(lambda: looked() >= COUNT, 300.0)
        found_s = time.monotonic() - began
        await eventually(lambda: looked() >= 2 * COUNT, 300.0)
    print(f"{COUNT} settled models looked at in {found_s:.1f} s after a start, {len(_writes(kube))} writes")
    assert _writes(kube) == []
    assert all(call.verb in ("list", "watch") for call in kube.calls if call.writer == WRITER)
    deployment = kube.objects.get("Deployment", "m000")
    assert TEMPLATE_ANNOTATION in deployment["spec"]["template"]["metadata"]["annotations"]
    assert conditions(kube, "m499")["Ready"] == ("True", "ScaledToZero")
