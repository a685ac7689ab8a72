"""Starting, watching and ending one child process.

A child has its own process group, an environment built here from nothing, sockets passed by
number, and a parent-death signal that it sets itself. Its stderr is passed on and the tail kept.
Spawn only from the main thread: the parent-death signal follows the thread that spawned.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from halogend.wire.environment import WORKER_ENVIRONMENT

_TAIL_LINES = 40
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "TZ")
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Of a child's environment: what differs with the number of its threads."""
_READ_BYTES = 64 << 10
_LOOK_ONLY = os.WEXITED | os.WNOHANG | os.WNOWAIT
_SIGNAL_HINTS = {
    signal.SIGBUS: "; a file that it had mapped was cut short, or its disk cannot be read",
    signal.SIGKILL: "; somebody sent it, or the system was out of memory",
}


@dataclass(frozen=True, slots=True)
class Host:
    """What children are started with. `environ` is the daemon's own, read by the command line; a
    child is the module ROLE of `package`; `root` is where /proc and /sys are."""

    environ: Mapping[str, str]
    stderr: BinaryIO
    package: str = "halogend"
    root: Path = Path("/")

    def child_environ(self, threads: int) -> dict[str, str]:
        """For a child whose operators run on `threads` threads."""
        environ = {name: self.environ[name] for name in _INHERITED if name in self.environ} | dict(WORKER_ENVIRONMENT)
        environ |= dict.fromkeys(THREAD_COUNTS, str(threads))
        environ["OPENBLAS_NUM_THREADS"] = "1"
        environ["TOKENIZERS_PARALLELISM"] = "false"
        environ["PYTHONUNBUFFERED"] = "1"
        return environ


class Child:
    """One running process. `exited` is set, and `status` is its exit status, when it is gone."""

    def __init__(self, role: str, popen: subprocess.Popen[bytes], stderr: BinaryIO) -> None:
        self.role = role
        self.pid = popen.pid
        self.status: int | None = None
        self.exited = asyncio.Event()
        self._popen = popen
        self._relay = stderr
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._partial = b""
        self._watch()

    @property
    def stderr_tail(self) -> str:
        lines = [*self._tail, self._partial] if self._partial else list(self._tail)
        return b"\n".join(lines).decode(errors="replace")

    @property
    def has_ended(self) -> bool:
        """As it is now, whether that was heard of or not."""
        try:
            return self.exited.is_set() or os.waitid(os.P_PID, self.pid, _LOOK_ONLY) is not None
        except ChildProcessError:
            return True

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        if not self.exited.is_set():
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(self.pid)
        pipe = self._popen.stderr
        if pipe is None:
            raise ValueError("a child needs a stderr pipe")
        os.set_blocking(pipe.fileno(), False)

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self.status = self._popen.wait()
            try:
                self._read_stderr()
            finally:
                self.exited.set()

        loop.add_reader(pidfd, ended)
        loop.add_reader(pipe.fileno(), self._read_stderr)

    def _read_stderr(self) -> None:
        pipe = self._popen.stderr
        if pipe is None or pipe.closed:
            return
        while True:
            try:
                data = os.read(pipe.fileno(), _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(pipe.fileno())
                pipe.close()
                return
            with contextlib.suppress(OSError, ValueError):  # nobody reads our stderr any more
                self._relay.write(data)
                self._relay.flush()
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._tail.extend(lines)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker's process is started into: its whole environment, the cores it is on (none: all), and the niceness
    of the thread that imports what it needs."""

    environ: Mapping[str, str]
    cores: Collection[int] = ()
    niceness: int = 0


def spawn(host: Host, module: str, sockets: Mapping[str, socket.socket], surroundings: Surroundings) -> Child:
    """Starts `python -m module --NAME-fd N ... --parent-pid P --niceness N` and closes our copies of the
    child's sockets. Raises OSError when no process can be made, or not on those cores."""
    arguments = [sys.executable, "-P", "-m", module, "--parent-pid", str(os.getpid())]
    arguments += ["--niceness", str(surroundings.niceness)]
    for name, sock in sockets.items():
        arguments += [f"--{name}-fd", str(sock.fileno())]
    try:
        popen = subprocess.Popen(
            arguments,
            env=dict(surroundings.environ),
            pass_fds=[sock.fileno() for sock in sockets.values()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    finally:
        for sock in sockets.values():
            sock.close()
    try:
        hold_to(popen.pid, surroundings.cores)  # it may have started a thread already
        return Child(module.rpartition(".")[2], popen, host.stderr)
    except OSError:  # not on these cores, or it could not be watched
        popen.kill()
        popen.wait()
        if popen.stderr is not None:
            popen.stderr.close()
        raise


def hold_to(pid: int, cores: Collection[int]) -> None:
    """A process that runs is on `cores` from now on (none: it stays where it is): all of its threads, which pass that
    on to those that they start. Raises OSError."""
    held: set[int] = set()
    while cores and (new := {int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()} - held):
        for thread in new:
            with contextlib.suppress(ProcessLookupError):  # that thread has just ended
                os.sched_setaffinity(thread, cores)
        held |= new


def ending(status: int | None) -> str:
    """How a process ended, as the end of a sentence."""
    if status is None or status >= 0:
        return f"ended with status {status}"
    known = next((each for each in signal.Signals if each == -status), None)
    if known is None:
        return f"was ended by signal {-status}"
    return f"was ended by {known.name}{_SIGNAL_HINTS.get(known, '')}"


async def reap(child: Child, grace_s: float, killed_s: float) -> int | None:
    """Waits for the exit that was asked for, kills after `grace_s`, and returns the exit status. None where even
    that has not ended it after `killed_s`: it waits in the kernel for a disk or a device."""
    try:
        async with asyncio.timeout(grace_s):
            await child.exited.wait()
    except TimeoutError:
        child.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(killed_s):
                await child.exited.wait()
    return child.status
