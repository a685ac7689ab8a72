"""Every admin route against a played world: each status code it is documented with, and none by accident."""

import asyncio

import httpx
import pytest
from starlette.routing import Route
from support.played.world import document, failure_of, until
from support.played_admin import PlayedAdmin

from halogend.api.admin import admin_app

PREFIX = "/admin/v1"


class Walk:
    """Asks, checks the status, and remembers which route it was."""

    def __init__(self, world):
        self.app = admin_app(PlayedAdmin(world))
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://admin")
        self.walked = {}

    async def __call__(self, status, method, path, **more):
        answer = await self.client.request(method, PREFIX + path, **more)
        assert answer.status_code == status, (method, path, answer.text)
        scope = {"type": "http", "method": method, "path": PREFIX + path.partition("?")[0]}
        (route,) = [route for route in self.app.routes if route.matches(scope)[0].value == 2]
        self.walked.setdefault((method, route.path), set()).add(status)
        return answer

    def routes(self):
        """(method, path) of all; a GET takes HEAD too."""
        return {(m, route.path) for route in self.app.routes if isinstance(route, Route) for m in route.methods}


async def _reads(walk):
    for path in ("/status", "/receipts", "/receipts/r1", "/document", "/ledger", "/cache", "/plan"):
        await walk(200, "GET", path)
        await walk(200, "HEAD", path)
    await walk(404, "GET", "/receipts/r99")
    await walk(404, "HEAD", "/receipts/r99")
    await walk(400, "GET", "/receipts/r1?wait=forever")
    assert len((await walk(200, "GET", "/receipts?limit=1")).json()["receipts"]) == 1
    for limit in ("0", "-1", "x", ""):
        await walk(400, "GET", f"/receipts?limit={limit}")
    for path in ("/ui", "/ui/page.js", "/ui/page.css"):
        await walk(200, "GET", path)
        await walk(200, "HEAD", path)
    await walk(200, "HEAD", "/events")


async def _changes(walk, world):
    """A good edit, a bad one, one that fails, and the way back."""
    good = document(world.model("a", max_batch=7))
    assert (await walk(200, "POST", "/plan?file=new.yaml", content=good)).json()["outcome"] == "changes"
    await walk(422, "POST", "/plan", content="models: [")
    await walk(413, "POST", "/plan", content=" " * (5 << 20))
    world.text = good
    accepted = await walk(202, "POST", "/reload")
    await walk(200, "GET", accepted.headers["location"].removeprefix(PREFIX) + "?wait=closed")
    await walk(200, "POST", "/reload?wait=serving")
    await walk(400, "POST", "/reload?wait=forever")
    await walk(404, "POST", "/rollback?receipt=r99")
    await walk(200, "POST", "/rollback?wait=closed")
    await walk(202, "POST", "/rollback")
    await walk(400, "POST", "/rollback?dry_run=maybe")
    world.text = document(world.model("a", "b"))
    world.stage.order("load", "fail", where={"model": "b", "role": "engine"}, code="HRT-1016", message="no memory")
    assert (await walk(500, "POST", "/reload?wait=closed")).json()["models"][0]["error"]


async def _bad_edit(walk, world):
    """R7: the caller is told what is wrong, and where."""
    world.text = document(world.model("a")) + "nonsense: 1\n"
    answer = await walk(422, "POST", "/reload?wait=serving")
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == ("config.yaml", world.text.count("\n"), 1)
    assert "nonsense" in problem["message"]
    await walk(422, "GET", "/plan")
    await walk(422, "HEAD", "/plan")


async def _hold(walk, world):
    world.text = document(world.model("a"))
    await walk(200, "POST", "/hold")
    await walk(422, "POST", "/reload?wait=serving")
    await walk(400, "POST", "/resume?wait=forever")
    await walk(202, "POST", "/resume")
    await walk(200, "POST", "/resume")


async def _put(walk, world):
    good = document(world.model("a", max_batch=9))
    await walk(200, "POST", "/reload?wait=closed")
    tag = (await walk(200, "GET", "/document?of=desired")).headers["etag"]
    await walk(400, "GET", "/document?of=mine")
    await walk(409, "PUT", "/document", content=good, headers={"if-match": '"000000000000"'})
    await walk(200, "PUT", "/document?dry_run=true", content=good, headers={"if-match": tag})
    origin = {"halogen-origin": "uid=x, generation=2"}
    await walk(200, "PUT", "/document?wait=serving", content=good, headers={"if-match": tag, **origin})
    await walk(409, "PUT", "/document", content=good, headers={"halogen-origin": "uid=x, generation=1"})
    await walk(202, "PUT", "/document", content=good, headers=origin)
    await walk(422, "PUT", "/document?wait=serving", content="models: [")
    await walk(422, "PUT", "/document?dry_run=true", content="models: [")
    await walk(415, "PUT", "/document", content=good, headers={"content-type": "text/html"})
    await walk(413, "PUT", "/document", content=" " * (5 << 20))


async def _drain(walk, world):
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    world.text = document(world.model("a", "c"))
    await walk(200, "POST", "/reload?wait=serving")
    await walk(400, "POST", "/models/a/drain?now=perhaps")
    await walk(400, "POST", "/models/a/drain?wait=serving")
    await walk(404, "POST", "/models/nobody/drain")
    told = await walk(200, "POST", "/models/a/drain")
    assert told.json()["generations"][0]["requests"] == 1
    ended = await walk(200, "POST", "/models/a/drain?now=true&wait=closed")
    assert ended.json()["generations"][0]["state"] == "gone"
    assert failure_of([event async for event in answer.events()]) == "draining"
    await walk(409, "POST", "/models/a/drain")


async def test_p8_every_admin_route_answers_as_documented(serving):
    world = await serving()
    walk = Walk(world)
    await _reads(walk)
    await _changes(walk, world)
    await _bad_edit(walk, world)
    await _hold(walk, world)
    await _put(walk, world)
    await _drain(walk, world)
    world.house.events.close("shutting down")
    assert "shutting_down" in (await walk(200, "GET", "/events")).text
    assert walk.routes() - set(walk.walked) == set()
    await walk.client.aclose()


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_p8_a_method_that_a_route_does_not_take_is_told_which_it_does(serving, method):
    walk = Walk(await serving())
    for _, path in sorted(walk.routes()):
        answer = await walk.client.request(method, path.replace("{id}", "r1").replace("{name:path}", "a"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed"), path
        assert answer.headers["allow"]
    await walk.client.aclose()


async def test_l12_a_caller_that_timed_out_finds_its_change_by_the_id_it_was_given(serving):
    world = await serving()
    walk = Walk(world)
    load = world.stage.hold("load", role="engine", model="b")
    world.text = document(world.model("a", "b"))
    asked = await walk(202, "POST", "/reload")
    where = asked.headers["location"].removeprefix(PREFIX)
    await load.reached()
    impatient = asyncio.create_task(walk(200, "GET", where + "?wait=serving"))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    assert (await walk(200, "GET", where)).json()["outcome"] is None
    load.release()
    assert (await walk(200, "GET", where + "?wait=serving")).json()["outcome"] == "applied"
    await walk.client.aclose()
