"""The daemon under torture, as its users have it: a process, an admin socket, commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from torture import http11

_COMMAND = (sys.executable, "-m", "halogend")
_PATIENCE_S = 240.0
_STOP_S = 180.0


class Daemon:
    """Runs until `stop`. `cores` pins it and all that comes from it."""

    def __init__(self, folder: Path, config: Path, cores: frozenset[int]) -> None:
        self._socket = folder / "admin.sock"
        self._log = folder / "daemon.log"
        words = ("run", "--config", str(config), "--admin", f"unix:{self._socket}", "--state", str(folder / "state"))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*_COMMAND, *words], stdout=log, stderr=log)
        os.sched_setaffinity(self._process.pid, cores)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status, once there is one."""
        return self._process.poll()

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    async def call(self, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
        """(status, JSON) of the admin listener. Raises OSError, also when it does not answer in time."""
        async with asyncio.timeout(_PATIENCE_S):
            answer = await http11.ask(await http11.unix(str(self._socket)), method, f"/admin/v1{target}", body)
            try:
                return answer.status, json.loads(await answer.body())
            except EOFError as error:
                raise ConnectionResetError(f"{target}: the answer broke off") from error
            finally:
                answer.close()

    async def command(self, *words: str) -> tuple[int, Any]:
        """(exit status, JSON) of a `halogend` command."""
        run = [*_COMMAND, *words, "--json", "--admin", f"unix:{self._socket}"]
        process = await asyncio.create_subprocess_exec(*run, stdout=subprocess.PIPE)
        out, _ = await process.communicate()
        return process.returncode or 0, json.loads(out)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def stop(self) -> int:
        """The exit status. A daemon that does not end in time is killed."""
        if self.ended is None:
            self.signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)
