"""What stands between a browser and the admin listener: one door, one guest, and reading only.

A port of 127.0.0.1 can be reached by every user of the machine, and by every page in the user's browser. So:

* The address that is printed holds a token that is good once. It gives a cookie, and a path that nobody can
  guess: the cookie is for that path alone, so no other server on this machine is ever sent it.
* A name other than 127.0.0.1 or localhost in `Host` is refused: a page whose name was made to point here
  (DNS rebinding) gets nothing. So is what the browser itself says comes from another site or port.
* Only GET, and only of what the page reads: whatever gets through, nothing can be changed.
"""

from __future__ import annotations

import hmac
import http.client
import http.cookies
import re
import secrets
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from halogend.cli import admin

_HOSTS = frozenset({"127.0.0.1", "localhost"})
_OWN = frozenset({"same-origin", "none"})  # what Sec-Fetch-Site says of the page itself and of an address typed in
_READABLE = re.compile(r"/(ui(/page\.(js|css))?|status|events|receipts(/r[0-9]{1,18})?)")
_COOKIE = "halogend_ui"
_SILENCE_S = 30.0
_MOST_CONNECTIONS = 32
_PIECE_BYTES = 64 << 10
Request = socket.socket | tuple[bytes, socket.socket]
_PASSED_ON = ("content-type", "content-security-policy", "cache-control", "x-content-type-options", "referrer-policy")
_PLAIN = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Door:
    """Who may come in. `enter` is asked by several threads, and says yes once."""

    def __init__(self, new: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> None:
        self.token, self.room, self._key = new(), new(), new()
        self._is_used = False
        self._lock = threading.Lock()

    def enter(self, token: str) -> str | None:
        """The cookie, for the one who brings the token first."""
        with self._lock:
            if self._is_used or not _same(token, self.token):
                return None
            self._is_used = True
        return f"{_COOKIE}={self._key}; Path=/{self.room}/; HttpOnly; SameSite=Strict"

    def admits(self, path: str, cookies: str) -> str | None:
        """The admin path (with its query, without `/admin/v1`) that the guest asks for; None for anybody else, and
        for what is not to be had here."""
        try:
            morsel = http.cookies.SimpleCookie(cookies).get(_COOKIE)
        except http.cookies.CookieError:
            return None
        room, _, wanted = path.removeprefix("/").partition("/admin/v1")
        if morsel is None or not _same(morsel.value, self._key) or not _same(room, self.room):
            return None
        return wanted if _READABLE.fullmatch(urlsplit(wanted).path) else None


def _same(given: str, meant: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), meant.encode())


class Proxy(ThreadingHTTPServer):
    """Listens from the moment it is made. Raises OSError where the port cannot be had. One connection too many is
    closed: every user of the machine can make them, and each has a thread."""

    def __init__(self, where: admin.Endpoint, port: int = 0, door: Door | None = None) -> None:
        self.where = where
        self.door = door or Door()
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(("127.0.0.1", port), Guest)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a browser that leaves in the middle is no fault, and would bury the address that was printed."""

    def process_request(self, request: Request, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be had
            self._room.release()
            raise

    def process_request_thread(self, request: Request, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    @property
    def url(self) -> str:
        """To be opened once."""
        return f"http://127.0.0.1:{self.server_address[1]}/?token={self.door.token}"


class Guest(BaseHTTPRequestHandler):
    """One request; each connection carries one."""

    server: Proxy
    timeout = 30.0
    server_version, sys_version = "halogend", ""

    def do_GET(self) -> None:
        if (self.headers.get("host") or "").partition(":")[0] not in _HOSTS:
            self._say(421, "This address is 127.0.0.1's alone.")
        elif self.headers.get("sec-fetch-site", "none") not in _OWN:
            self._say(403, "Another page may not look here.")
        elif (asked := urlsplit(self.path)).path == "/":
            self._let_in(parse_qs(asked.query).get("token", [""])[0])
        elif (wanted := self.server.door.admits(self.path, self.headers.get("cookie") or "")) is None:
            self._say(403, "Nothing here for you. Run `halogend ui` again for an address of your own.")
        else:
            self._pass_on(wanted)

    def _let_in(self, token: str) -> None:
        """A page that goes on by itself, not a redirect: so the browser takes the next request for this site's own."""
        cookie = self.server.door.enter(token)
        if cookie is None:
            self._say(403, "This address was used, or is not right. Run `halogend ui` again.")
            return
        page = f"/{self.server.door.room}/admin/v1/ui"
        text = f'<!doctype html><meta http-equiv="refresh" content="0; url={page}"><a href="{page}">halogend</a>'
        self._send(200, text.encode(), {**_PLAIN, "content-type": "text/html", "set-cookie": cookie})

    def _pass_on(self, wanted: str) -> None:
        last = self.headers.get("last-event-id")
        headers = {} if last is None else {"last-event-id": last}
        try:
            with admin.asked(self.server.where, "GET", wanted, headers=headers, silence_s=_SILENCE_S) as response:
                self._head(response.status, {name: response.headers[name] for name in _PASSED_ON})
                while piece := response.read1(_PIECE_BYTES):
                    self.wfile.write(piece)
        except admin.AdminError as error:
            self._say(502, str(error))
        except (OSError, http.client.HTTPException):  # one of the two left; the other sees the end
            self.close_connection = True

    def _say(self, status: int, text: str) -> None:
        self._send(status, f"{text}\n".encode(), {**_PLAIN, "content-type": "text/plain; charset=utf-8"})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self._head(status, {**headers, "content-length": str(len(data))})
        self.wfile.write(data)

    def _head(self, status: int, headers: dict[str, str | None]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the standard library names it
        """Nothing: a line of its own for each look would hide the address that was printed."""
