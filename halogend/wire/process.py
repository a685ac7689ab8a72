"""What a process does about itself before anything else: a worker, and where it says so the daemon too."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
EXIT_PEER_LOST = 4  # the other process of the generation went first
EXIT_ORPHANED = 6
_SWITCH_S = 0.0005


def die_with_parent(parent_pid: int) -> None:
    """The kernel kills this process when the thread that spawned it ends (prctl(2)).

    Exits at once if the parent was gone before that was set. Raises OSError where the kernel
    refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)


def nice_thread(level: int) -> None:
    """Raises the calling thread's niceness to `level`: per thread on Linux, passed on to threads that it starts, and
    not to be lowered again.

    Not SCHED_IDLE: at nice 19 one that serves has the core as soon (p99 0.1 ms either way), and where others want
    all there is an idle thread gets a fifth of what a nice one does, so that a load is hardly ever done.
    """
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, max(level, os.getpriority(os.PRIO_PROCESS, thread)))


def hand_over_soon() -> None:
    """A thread that computes in Python gives the interpreter to one that wants it after half a millisecond. Five, as
    Python has it, are several tokens of a small model: an event loop that lends the interpreter with each read would
    wait so long for documents that are parsed beside it."""
    sys.setswitchinterval(_SWITCH_S)


def import_nicely(module: str, level: int) -> None:
    """Imports `module` and all that it needs in a thread of that niceness, and waits: it takes a core for some tenths
    of a second, which those who serve beside would wait for. Raises what the import raises."""
    failures: list[BaseException] = []

    def work() -> None:
        nice_thread(level)
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the caller gets it)
            failures.append(error)

    thread = threading.Thread(target=work, name="import")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


class ThreadClock:
    """How much processor time a loading thread has had: it moves however slowly a starved thread is
    served, and rests when the thread is stuck. One thread may follow another. Written by that thread, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the thread cannot end while its clock is read
        self._clock: int | None = None
        self._before = self._last = 0

    def follow(self) -> None:
        """The calling thread is the one."""
        self._before = self._last
        self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def leave(self) -> None:
        """The calling thread is about to end."""
        with self._lock:
            self._read()
            self._clock = None

    def ticks(self) -> int:
        """Hundredths of a second; never falls."""
        with self._lock:
            self._read()
            return self._last

    def _read(self) -> None:
        if self._clock is not None:
            self._last = max(self._last, self._before + int(time.clock_gettime(self._clock) * 100))
