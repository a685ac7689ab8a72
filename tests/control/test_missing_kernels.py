"""HRT-1102: a kernel that is missing, and may not be compiled, refuses the newcomer before it is read."""

import pytest
from support.fake_devices import accelerator
from support.played.world import failure_of, until

from halogend.config.codes import Code

GIB = 1 << 30
NEVER = {"compile": "never", "cache_dir": "/kernels"}
MISSING = {
    "code": Code.KERNEL_NOT_FOUND,
    "message": "b.gguf: kernel not found for op: rotate: /kernels has no rotate for sm_90; compile it with"
    " `halogend warmup-kernel --target sm_90 --cache-dir /kernels`",
}


@pytest.fixture
async def there(world):
    """A world with an accelerator, whose engines find a kernel missing where they may not compile it."""
    made = await world(8 * GIB, accelerators=(accelerator(),))
    made.stage.order("load", "fail", where={"role": "engine", "model": "b"}, **MISSING)
    return made


async def test_on_a_swap_what_served_serves_on(there):
    assert (await there.apply(there.model("a", device="cuda:0"))).outcome == "applied"
    await until(there.is_quiet, "all is quiet")
    before = there.dump()
    text = await there.submit("a", "a b c", 3)
    receipt = await there.apply(there.model("a", "b", device="cuda:0", kernels=NEVER))
    assert receipt.outcome == "failed"
    error = receipt.models["a"].error
    assert "HRT-1102" in error
    assert "kernel not found for op: rotate" in error
    assert "`halogend warmup-kernel --target sm_90 --cache-dir /kernels`" in error
    assert failure_of([event async for event in text.events()]) is None, "it ran through all of it"
    await there.comes_back_to(before)
    assert (there.unit("a").serving.number, there.state("a")) == (1, "serving")
    assert not there.status()["settled"], "desired is not what is active"
    assert failure_of(await there.ask("a")) is None
    assert there.stage.at("ready", "engine", "b") == [], "it never came so far"


async def test_it_is_loaded_where_it_may_be_compiled(there):
    await there.apply(there.model("a", device="cuda:0"))
    assert (await there.apply(there.model("a", "b", device="cuda:0", kernels=NEVER))).outcome == "failed"
    there.stage.order("load", "go", where={"role": "engine", "model": "b"})
    assert (await there.apply(there.model("a", "b", device="cuda:0"))).outcome == "applied"
    spec = there.unit("a").serving.spec.engine
    assert (spec.may_compile, there.unit("a").serving.number) == (True, 3)


async def test_at_the_first_start_others_serve(there):
    receipt = await there.apply(there.model("b", device="cuda:0", kernels=NEVER), there.model("c", device="cpu:0"))
    assert receipt.outcome == "partially_applied"
    assert "HRT-1102" in receipt.models["b"].error
    assert (there.state("b"), there.state("c")) == ("failed", "serving")
    assert failure_of(await there.ask("c")) is None
