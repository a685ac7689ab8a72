"""An operator in a process of its own, and what it costs: nothing else runs there, and all is as it is by default.

`python -m support.operator_process SERVER PORT` runs one that asks pods at that port instead of the usual one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

_TESTS = Path(__file__).parents[1]
_LOOKS = re.compile(r'^halogen_operator_reconciles_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)
_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass
class OperatorProcess:
    """One that listens. `began` is a moment of `time.monotonic`, before the process was there."""

    process: Process
    address: str
    began: float
    lines: list[str] = field(default_factory=list)
    """What it logged since."""

    def cpu_s(self) -> float:
        """Seconds that it computed, in user and system mode."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most_mib(self) -> float:
        """The most memory it ever held."""
        found = _HIGH_WATER.search(Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024.0

    async def looks(self) -> dict[str, int]:
        """How many looks there were, by outcome."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}/metrics") as answer:
            return {outcome: int(float(count)) for outcome, count in _LOOKS.findall(await answer.text())}


@contextlib.asynccontextmanager
async def operator_process(url: str, admin_port: int) -> AsyncIterator[OperatorProcess]:
    """It is ended in good order."""
    began = time.monotonic()
    arguments = ("-m", "support.operator_process", url, str(admin_port))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, cwd=_TESTS)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60.0):
            started = json.loads(await process.stdout.readline())
        operator = OperatorProcess(process, started["address"], began)
        reader = asyncio.create_task(_read(process.stdout, operator.lines))
        yield operator
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60.0):
            assert await process.wait() == 0
        await reader
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read(stream: asyncio.StreamReader, lines: list[str]) -> None:
    while line := await stream.readline():
        lines.append(line.decode().rstrip())


async def _until_signalled(server: str, admin_port: int) -> None:
    from halogen_operator.app import run
    from halogen_operator.settings import Settings

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run(Settings(server=server, admin_port=admin_port, host="127.0.0.1", port=0), stop)


def _main(server: str, admin_port: str) -> None:
    from halogend.obs.log import configure_daemon

    configure_daemon(level="info")
    asyncio.run(_until_signalled(server, int(admin_port)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
