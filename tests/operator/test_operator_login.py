"""How the operator gets to an API server: service account, kubeconfig, and a token that changes while it runs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from halogen_operator import login


def _kubeconfig(path: Path, *, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    held = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "bare", "context": {"cluster": "c"}},
            {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    file = path / "config"
    file.write_text(yaml.safe_dump(held))
    return file


def test_a_kubeconfig_gives_server_and_token(tmp_path: Path) -> None:
    access = login.from_kubeconfig(_kubeconfig(tmp_path, user={"token": "t"}))
    assert access.server == "http://127.0.0.1:1"
    assert access.token is not None
    assert access.token() == "t"
    assert login.from_kubeconfig(tmp_path / "config", "bare").token is None


def test_a_token_file_may_be_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    access = login.from_kubeconfig(_kubeconfig(tmp_path, user={"tokenFile": "token"}))
    assert access.token is not None
    assert access.token() == "from-file"


def test_a_cluster_may_say_that_its_certificate_is_not_checked(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    access = login.from_kubeconfig(_kubeconfig(tmp_path, user={}, cluster=cluster))
    assert access.tls is not None
    assert not access.tls.check_hostname


@pytest.mark.parametrize(
    ("user", "context", "words"),
    [
        ({"exec": {"command": "aws"}}, None, "logs in by a program"),
        ({}, "nowhere", "no context named 'nowhere'"),
        ({}, "lost", "no cluster named 'nowhere'"),
    ],
)
def test_what_a_kubeconfig_cannot_do_is_said(
    tmp_path: Path, user: dict[str, Any], context: str | None, words: str
) -> None:
    with pytest.raises(login.LoginError, match=words):
        login.from_kubeconfig(_kubeconfig(tmp_path, user=user), context)


def test_a_file_that_is_no_kubeconfig_is_said(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("just a word")
    with pytest.raises(login.LoginError, match="is not a kubeconfig"):
        login.from_kubeconfig(tmp_path / "config")
    with pytest.raises(login.LoginError, match="is not a kubeconfig"):
        login.from_kubeconfig(tmp_path / "absent")


def test_bytes_that_are_no_certificate_are_said(tmp_path: Path) -> None:
    cluster = {"server": "https://h", "certificate-authority": "absent.crt"}
    with pytest.raises(login.LoginError, match="certificate-authority"):
        login.from_kubeconfig(_kubeconfig(tmp_path, user={}, cluster=cluster))
    data = base64.b64encode(b"\xff\xfe").decode()
    cluster = {"server": "https://h", "certificate-authority-data": data}
    with pytest.raises(login.LoginError, match="certificate-authority"):
        login.from_kubeconfig(_kubeconfig(tmp_path, user={}, cluster=cluster))


def test_outside_of_a_cluster_the_ways_in_are_named(tmp_path: Path) -> None:
    with pytest.raises(login.LoginError, match="--kubeconfig"):
        login.in_cluster({}, tmp_path)


def test_a_token_is_read_again_once_a_minute_and_kept_while_it_cannot_be(tmp_path: Path) -> None:
    moments = iter([0.0, 0.0, 59.0, 60.0, 60.0, 125.0, 125.0])
    file = tmp_path / "token"
    file.write_text("one")
    token = login.TokenFile(file, lambda: next(moments))
    assert token() == "one"
    file.write_text("two")
    assert token() == "one"
    assert token() == "two"
    file.unlink()
    assert token() == "two"


async def test_each_request_shows_the_token_of_its_moment() -> None:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response()

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    tokens = iter(["one", "two"])
    access = login.Access(url, token=lambda: next(tokens))
    connector = login.connector(access)
    async with connector, login.session(access, connector) as session:
        assert isinstance(session, aiohttp.ClientSession)
        for _ in range(2):
            (await session.get(url)).release()
    await runner.cleanup()
    assert seen == ["Bearer one", "Bearer two"]
