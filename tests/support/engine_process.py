"""A real engine process at the other end of real sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.engine_client import PATIENCE_S, EngineClient

from halogend.wire.channel import WorkerChannel
from halogend.wire.control import EngineReady, Hello, StartEngine
from halogend.wire.specs import EngineSpec


def _first_of_all(packages: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])}


class EngineProcess:
    """Started, but not told what to load. `close` ends it whatever its state. Python looks for what it imports in
    `packages` first."""

    def __init__(
        self,
        *,
        parent_pid: int | None = None,
        threads: int = 1,
        niceness: int = 0,
        packages: Path | None = None,
    ) -> None:
        our_control, their_control = socket.socketpair()
        our_data, their_data = socket.socketpair()
        fds = (their_control.fileno(), their_data.fileno())
        self.popen = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "halogend.engine"),
                *("--control-fd", str(fds[0]), "--data-fd", str(fds[1])),
                *("--parent-pid", str(parent_pid or os.getpid()), "--niceness", str(niceness)),
            ],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                **({} if packages is None else _first_of_all(packages)),
                "OMP_NUM_THREADS": str(threads),
                "MKL_NUM_THREADS": str(threads),
                "OMP_WAIT_POLICY": "passive",
            },
        )
        their_control.close()
        their_data.close()
        self.client = EngineClient(WorkerChannel(our_control), WorkerChannel(our_data))

    def start(self, spec: EngineSpec) -> EngineReady:
        """Hello, StartEngine, EngineReady."""
        self.client.until_told(Hello)
        self.client.control.send(StartEngine(spec=spec))
        ready = self.client.until_told(EngineReady)
        assert isinstance(ready, EngineReady)
        return ready

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit status. Raises subprocess.TimeoutExpired."""
        return self.popen.wait(timeout_s)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """What is sent within the block is all there when it goes on."""
        self.popen.send_signal(signal.SIGSTOP)
        yield
        self.popen.send_signal(signal.SIGCONT)

    def end_control(self) -> None:
        """The engine reads the end; what it says is still heard."""
        with socket.socket(fileno=os.dup(self.client.control.fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def send_raw(self, data: bytes) -> None:
        with socket.socket(fileno=os.dup(self.client.control.fileno())) as same:
            same.sendall(data)

    def niceness(self) -> dict[int, int]:
        """Of each thread, by its id."""
        found: dict[int, int] = {}
        for task in Path(f"/proc/{self.popen.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it may just have ended
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                found[int(task.name)] = int(fields[16])
        return found

    def files(self) -> list[str]:
        """What it has open, but for what it waits with."""
        found = [str(each.readlink()) for each in Path(f"/proc/{self.popen.pid}/fd").iterdir()]
        return sorted(each for each in found if not each.startswith("anon_inode:"))

    def close(self) -> tuple[bytes, bytes]:
        """What it wrote to stdout and stderr."""
        self.popen.kill()
        written = self.popen.communicate()
        self.client.control.close()
        self.client.data.close()
        return written
