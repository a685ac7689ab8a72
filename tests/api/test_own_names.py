"""A listener that nobody wrote a key for is for this machine: no page gets in through a name of its own."""

import pytest
from support.http_world import World, chat
from support.scripted_router import ScriptedRouter

from halogend.api.auth import Guard
from halogend.api.own_names import is_own
from halogend.config.schema import ServerConfig
from halogend.control.access import look
from halogend.control.keys import Keyring

OWN = [
    "127.0.0.1:8000",
    "127.0.0.1",
    "127.1:8000",
    "192.168.1.7:8000",
    "[::1]:8000",
    "[::1]",
    "[fe80::1%eth0]:80",
    "localhost",
    "localhost:52341",
    "LocalHost.:8000",
    "chat.localhost:8000",
    "box:8000",
    "",
]
FOREIGN = [
    "rebind.example",
    "rebind.example:8000",
    "localhost.rebind.example:8000",
    "127.0.0.1.rebind.example",
    "127.0.0.1:8000@rebind.example",
    "notlocalhost",
    "box.rebind.example",
    "rebind.example#.localhost:x",
    "[rebind.example]:8000",
    "[127.0.0.1]:8000",
    "::1:8000",
    "localhost rebind.example",
]


@pytest.mark.parametrize("host", OWN)
def test_who_is_on_the_machine_means_it(host: str) -> None:
    assert is_own(host, {"box"})


@pytest.mark.parametrize("host", FOREIGN)
def test_a_name_from_elsewhere_is_not_ours(host: str) -> None:
    assert not is_own(host, {"box"})


class Open(World):
    def __init__(self, keyring: Keyring) -> None:
        super().__init__(ScriptedRouter())
        self.app = Guard(self.app, lambda: keyring, "infer", self.metrics, names={"box"})


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/livez", "/no/such/path"])
async def test_a_page_whose_name_was_made_to_point_here_reads_nothing(path: str) -> None:
    world = Open(Keyring(is_unstated=True))
    async with world.client() as client:
        refused = await client.get(path, headers={"host": "rebind.example:8000"})
        own = await client.get(path, headers={"host": "localhost:8000"})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["explain"]) == (421, "host_not_allowed", "HAP-1023")
    assert "rebind.example" in error["message"]
    assert "auth: none" in error["message"]
    assert own.status_code != 421
    assert world.sample("access_refused_total", scope="infer", reason="host_not_allowed") == 1


async def test_nor_does_it_spend_the_models_time() -> None:
    world = Open(Keyring(is_unstated=True))
    async with world.client() as client:
        refused = await client.post("/v1/chat/completions", json=chat(), headers={"host": "rebind.example"})
        answered = await client.post("/v1/chat/completions", json=chat(), headers={"host": "[::1]:8000"})
    assert (refused.status_code, answered.status_code) == (421, 200)


@pytest.mark.parametrize("keyring", [Keyring(), Keyring(keys=(), lets_all_infer=True)])
async def test_where_open_access_was_written_any_name_does(keyring: Keyring) -> None:
    async with Open(keyring).client() as client:
        assert (await client.get("/v1/models", headers={"host": "models.example"})).status_code == 200


@pytest.mark.parametrize(("auth", "is_unstated"), [({}, True), ({"auth": "none"}, False)])
def test_what_nobody_wrote_is_told_from_what_somebody_did(auth: dict[str, str], is_unstated: bool) -> None:
    access, facts = look(ServerConfig.model_validate(auth))
    assert (access.is_unstated, access.keys, facts) == (is_unstated, None, ())
    followed = Keyring().followed_by(access.keys, 0.0, 0.0, is_unstated=access.is_unstated)
    assert followed == Keyring(is_unstated=is_unstated)
