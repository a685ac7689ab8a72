"""`halogend ui`: who comes in, once, and how far."""

import asyncio
import contextlib
import http.client
import re
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

from halogend.api.addresses import UnixAddress
from halogend.api.admin import admin_app
from halogend.api.listener import Listener
from halogend.cli import ui_proxy
from halogend.cli.admin import Endpoint
from halogend.cli.main import main
from halogend.cli.ui_proxy import Door, Proxy
from halogend.control.events import Events


class Admin:
    """As much of a daemon as the page reads."""

    def __init__(self):
        self.ring = Events(run="run", clock=lambda: 0.0)

    def status(self):
        return {"settled": True}

    def receipts(self):
        return ()

    def receipt(self, receipt_id):
        return None

    def events(self):
        return self.ring


@contextlib.asynccontextmanager
async def answering(folder, admin=None):
    listener = Listener(admin_app(admin or Admin()), UnixAddress(folder / "admin.sock"))
    listener.bind()
    await listener.serve()
    try:
        yield Endpoint(f"unix:{folder}/admin.sock")
    finally:
        await listener.close(0)


@contextlib.contextmanager
def proxied(where):
    with Proxy(where) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


class Browser:
    """Asks in a thread; keeps its cookie for the path it was given for."""

    def __init__(self, proxy):
        self.port = proxy.server_address[1]
        self.cookie = self.path = ""

    async def get(self, path, method="GET", **headers):
        return await asyncio.to_thread(self._ask, method, path, {k.replace("_", "-"): v for k, v in headers.items()})

    def _ask(self, method, path, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        if self.cookie and path.startswith(self.path):
            headers = {"cookie": self.cookie, **headers}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, body

    async def enter(self, url):
        """As a browser does with what was printed: follows the page to the room."""
        status, headers, body = await self.get(url[url.index("/?") :])
        if status != 200:
            return status
        self.cookie, _, rest = headers["set-cookie"].partition("; ")
        self.path = re.search("Path=([^;]+)", rest)[1]
        self.attributes = rest
        self.room = re.search('url=([^"]+)', body)[1]
        return status


async def test_one_browser_comes_in_once_and_sees_the_page(tmp_path):
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            browser = Browser(proxy)
            assert await browser.enter(proxy.url) == 200
            assert {"HttpOnly", "SameSite=Strict"} <= set(browser.attributes.split("; "))
            status, headers, page = await browser.get(browser.room)
            assert (status, "<title>halogend</title>" in page) == (200, True)
            assert "default-src 'none'" in headers["content-security-policy"]
            base = browser.room.removesuffix("ui")
            assert (await browser.get(base + "status"))[2] == '{"settled":true}'
            assert (await browser.get(base + "receipts?limit=20"))[0] == 200
            assert (await browser.get(base + "receipts/r1"))[0] == 404
            assert (await browser.get(base + "ui/page.js"))[1]["content-type"].startswith("text/javascript")
            again = Browser(proxy)
            assert await again.enter(proxy.url) == 403


async def test_events_come_through_and_go_on_from_an_id(tmp_path):
    admin = Admin()
    admin.ring.publish("step", n=1)
    admin.ring.publish("step", n=2)
    admin.ring.close("shutting down")
    async with answering(tmp_path, admin) as where:
        with proxied(where) as proxy:
            browser = Browser(proxy)
            await browser.enter(proxy.url)
            events = browser.room.removesuffix("ui") + "events"
            status, headers, text = await browser.get(events, last_event_id="run-1")
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert ("id: run-2" in text, "shutting_down" in text) == (True, True)


@pytest.mark.parametrize(
    "path",
    ["reload", "hold", "models/a/drain", "document", "ledger", "receipts/../reload", "ui/../status", "receipts/rx", ""],
)
async def test_only_what_the_page_reads_is_there(path, tmp_path):
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            browser = Browser(proxy)
            await browser.enter(proxy.url)
            assert (await browser.get(browser.room.removesuffix("ui") + path))[0] == 403


async def test_whoever_is_not_that_browser_gets_nothing(tmp_path):
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            browser, thief = Browser(proxy), Browser(proxy)
            for path in ("/", "/?token=", "/?token=wrong", "/?token=%C3%A4", "/admin/v1/status", "/nothing"):
                assert (await thief.get(path))[0] == 403
            assert await browser.enter(proxy.url) == 200  # what was tried before does not count
            assert (await thief.get(browser.room))[0] == 403  # the path alone
            for cookie in ("halogend_ui=wrong", "halogend_ui=", "other=1", "\x01"):
                assert (await thief.get(browser.room, cookie=cookie))[0] == 403
            assert (await thief.get("/other/admin/v1/status", cookie=browser.cookie))[0] == 403  # the cookie alone
            for method in ("POST", "PUT", "DELETE", "HEAD"):
                assert (await browser.get(browser.room.removesuffix("ui") + "reload", method=method))[0] == 501


async def test_another_page_in_the_same_browser_gets_nothing(tmp_path):
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            browser = Browser(proxy)
            for host in ("rebound.example", f"rebound.example:{browser.port}", "127.0.0.1.example", "[::1]", ""):
                assert (await browser.get(proxy.url[proxy.url.index("/?") :], host=host))[0] == 421
            assert await browser.enter(proxy.url) == 200
            assert (await browser.get(browser.room, host="localhost:9"))[0] == 200  # a forwarded port
            for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
                assert (await browser.get(browser.room, sec_fetch_site=site))[0] == status


async def test_where_the_daemon_went_away_it_is_said(tmp_path):
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            browser = Browser(proxy)
            await browser.enter(proxy.url)
            (tmp_path / "admin.sock").unlink()
            status, _, text = await browser.get(browser.room)
    assert (status, "no daemon answers" in text) == (502, True)


def test_a_token_opens_once_however_many_try():
    door = Door()
    opened = []
    threads = [threading.Thread(target=lambda: opened.append(door.enter(door.token))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each is not None for each in opened) == 1


@pytest.mark.parametrize("port", ["65536", "-1", "x", "²"])
def test_a_port_that_is_none_is_a_usage_error(port, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["ui", "--port", port])
    assert caught.value.code == 2


def test_without_a_daemon_no_port_is_opened(tmp_path, capsys):
    assert main(["ui", "--admin", f"unix:{tmp_path}/nobody.sock"]) == 1
    assert "no daemon answers" in capsys.readouterr().err


async def test_a_port_that_is_taken_is_told(tmp_path, capsys):
    async with answering(tmp_path) as where:
        with Proxy(where) as busy:
            words = ["ui", "--port", str(busy.server_address[1]), "--admin", str(where)]
            assert await asyncio.to_thread(main, words) == 1
    assert "take another --port" in capsys.readouterr().err


async def test_a_browser_that_leaves_in_the_middle_does_not_bury_the_address(tmp_path, capfd):
    linger = struct.pack("ii", 1, 0)
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            left = threading.Event()
            proxy.process_request_thread = _then(proxy.process_request_thread, left.set)
            with socket.create_connection(proxy.server_address) as guest:
                guest.sendall(b"GET / HT")
                guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            # it was reset
            assert await asyncio.to_thread(left.wait, 10)
            assert await Browser(proxy).get("/nothing")
    assert "Traceback" not in capfd.readouterr().err


def _then(work, after):
    def both(*given):
        try:
            work(*given)
        finally:
            after()

    return both


async def test_it_ends_with_the_command(tmp_path):
    async with answering(tmp_path) as where:
        words = [sys.executable, "-m", "halogend", "ui", "--admin", str(where)]
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
        async with asyncio.timeout(20):
            url = (await process.stdout.readline()).decode().strip()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", url)


async def test_more_connections_than_it_has_room_for_are_closed_and_one_that_goes_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr(ui_proxy, "_MOST_CONNECTIONS", 2)
    async with answering(tmp_path) as where:
        with proxied(where) as proxy:
            held = [socket.create_connection(proxy.server_address) for _ in range(2)]
            with socket.create_connection(proxy.server_address) as more:
                more.settimeout(10)
                assert await asyncio.to_thread(more.recv, 1) == b""
            for each in held:
                each.close()

            def is_answered():
                with socket.create_connection(proxy.server_address) as again:
                    again.settimeout(10)
                    again.sendall(b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    with contextlib.suppress(ConnectionError):
                        return again.recv(12)
                return b""

            assert any([await asyncio.to_thread(is_answered) for _ in range(200)])
