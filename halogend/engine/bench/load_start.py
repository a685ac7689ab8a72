"""How long a model takes from nothing to its first token, on our side and on llama.cpp's."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import msgspec

from halogend.checkpoint.sizes import VALUE_BYTES
from halogend.engine.bench.children import ChildFailedError
from halogend.engine.bench.driven import GREEDY, PATIENCE_S, DrivenEngine, EngineLostError, make_spec
from halogend.engine.bench.servers import free_port
from halogend.obs.processor import numbers
from halogend.wire.requests import Generate
from halogend.wire.specs import EngineLimits, EngineSpec

WINDOWS: Mapping[str, str] = MappingProxyType(
    {
        "load_s": "from an engine's Hello, or from being told what to load where that comes later, until every weight "
        "is usable (an embedding table where it is mapped, which is read later), the pool is built and the warm-up is "
        "done. The import of torch lies before Hello, and so outside. "
        "Of llama.cpp, which is told as it starts: from the start of its process until it serves",
        "first_token_s": "from the start of the process to the first token of a prompt of 16: the import of torch lies "
        "inside. Of an engine that stands by, which has imported it: from being told what to load",
    }
)
"""What each time is of, for people: the report has it beside the figures."""
_PROMPT = tuple(range(1, 17))  # ids that every vocabulary has
_CONTEXT = 512
_POOL_BYTES = 1 << 30  # reserved, touched only where the warm-up and the prompt write
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class StartFigures:
    """Seconds of the windows that WINDOWS tells. `warmup_s` is the part of our load that the warm-up takes; the last
    weights may be read meanwhile. 0 of llama.cpp, which does not tell. Bytes are of the process, after its first token:
    `pss_bytes` counts a page that several processes map as a share for each (proc(5))."""

    load_s: float
    warmup_s: float
    first_token_s: float
    pss_bytes: int
    anonymous_bytes: int


def start_ours(
    path: str, precision: str, load_threads: int, *, ahead: bool, on_hello: Callable[[], None]
) -> StartFigures:
    """One engine process, gone when this returns. `ahead`: as a daemon's spare one, it has said Hello before it is told
    what to load. Raises ChildFailedError."""
    with running(engine_spec(path, precision, load_threads), ahead=ahead, on_hello=on_hello) as (_, figures):
        return figures


@contextlib.contextmanager
def running(
    spec: EngineSpec, *, ahead: bool = False, on_hello: Callable[[], None] = lambda: None
) -> Iterator[tuple[int, StartFigures]]:
    """An engine process that has sampled a token: its number, and what that took. Raises ChildFailedError."""
    try:
        with DrivenEngine(spec, ahead=ahead, on_hello=on_hello) as engine:
            request = Generate(id=1, prompt_ids=_PROMPT, max_tokens=1, sampling=GREEDY, stop_ids=())
            engine.submit(request)
            first_s = _first_token(engine)
            memory = memory_of(engine.pid)
            yield (
                engine.pid,
                StartFigures(
                    load_s=engine.ready_s - max(engine.hello_s, engine.asked_s),
                    warmup_s=engine.ready.warmup_s,
                    first_token_s=first_s - (engine.asked_s if ahead else engine.began_s),
                    pss_bytes=memory["Pss"],
                    anonymous_bytes=memory["Anonymous"],
                ),
            )
    except EngineLostError as error:
        raise ChildFailedError(str(error)) from error


def engine_spec(path: str, precision: str, load_threads: int) -> EngineSpec:
    """On all cores; products in `precision` where that is a number format, else in the processor's own numbers. Raises
    CheckpointError."""
    limits = EngineLimits(
        max_model_len=_CONTEXT,
        max_batch=1,
        max_queue=1,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=0,
        pool_bytes=_POOL_BYTES,
    )
    products = precision if precision in VALUE_BYTES else numbers()
    spec = make_spec(path, limits, len(os.sched_getaffinity(0)), products)
    return msgspec.structs.replace(spec, precision=precision, load_threads=load_threads)


def memory_of(pid: int) -> Mapping[str, int]:
    """Bytes by the names of /proc/PID/smaps_rollup. Raises OSError where there is none."""
    rows = re.findall(r"^(\w+): +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return {name: int(value) << 10 for name, value in rows}


def start_peer(path: str) -> StartFigures:
    """llama.cpp's server from the wheel `xllamacpp`, which warms up by itself. Raises ChildFailedError."""
    port = free_port()
    settings = {
        "model": path,
        "port": port,
        "parallel": 1,
        "context": _CONTEXT,
        "threads": len(os.sched_getaffinity(0)),
    }
    command = [sys.executable, "-m", "halogend.engine.bench.peer_server", json.dumps(settings)]
    began_s = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _await_listening(process.stderr)
            ready_s = _await_healthy(process, port)
            _complete(port)
            first_s = time.monotonic()
            memory = memory_of(process.pid)
        finally:
            process.kill()
    return StartFigures(ready_s - began_s, 0.0, first_s - began_s, memory["Pss"], memory["Anonymous"])


def _await_listening(stderr: IO[bytes] | None) -> None:
    """What it writes afterwards is read and thrown away, so that it never waits for us."""
    lines: list[bytes] = []
    for line in stderr or ():
        lines.append(line)
        if b"listening " in line:  # the dots of its progress may stand before
            threading.Thread(target=lambda: list(stderr or ()), daemon=True).start()
            return
    raise ChildFailedError(lines[-1].decode(errors="replace").strip() if lines else "llama.cpp ended without a word")


def _await_healthy(process: subprocess.Popen[bytes], port: int) -> float:
    """When it served."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if _ask(port, "GET", "/health")[0] == http.HTTPStatus.OK:
                return time.monotonic()
        time.sleep(_POLL_S)
    raise ChildFailedError("llama.cpp does not serve")


def _complete(port: int) -> None:
    status, answer = _ask(port, "POST", "/completion", {"prompt": list(_PROMPT), "n_predict": 1, "temperature": 0})
    if status != http.HTTPStatus.OK:
        raise ChildFailedError(f"llama.cpp answered {status}: {answer[:200].decode(errors='replace')}")


def _ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _first_token(engine: DrivenEngine) -> float:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for when, frame in engine.turn(deadline - time.monotonic()):
            if frame.sampled:
                return when
            if frame.ended:
                failure = frame.ended[0].failure
                raise EngineLostError("no token" if failure is None else failure.message)
    raise EngineLostError("the engine has no token")
