"""A played world: `world` makes one, and at its end no process, task or open file may be left."""

import pytest
from support.played.world import GIB, World, until


@pytest.fixture
async def world(tmp_path):
    made = []

    async def make(memory_bytes=64 * GIB, folder=None, state=None, accelerators=()):
        folder = folder or tmp_path / str(len(made))
        folder.mkdir(exist_ok=True)
        new = World(folder, memory_bytes, state, accelerators)
        made.append(new)
        await new.stage.open()
        return new

    yield make
    for each in made:
        await each.stop()


@pytest.fixture
async def serving(world):
    """A world in which `a` serves, with whatever fields the test gives it."""

    async def make(memory_bytes=64 * GIB, **fields):
        new = await world(memory_bytes)
        receipt = await new.apply(new.model("a", **fields))
        assert receipt.outcome == "applied", new.log.getvalue().decode()
        await until(new.is_quiet, "all is quiet")
        return new

    return make
