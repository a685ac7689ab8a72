"""A llama.cpp server in a child process, as an oracle and a peer to measure against.

    with llama_server(model, ctx=2048, flash_attn_type="LLAMA_FLASH_ATTN_TYPE_DISABLED") as url:
        ids = llama_tokenize(url, "text", add_special=True, parse_special=False)

Run as a program it is that child: it serves until its standard input ends, so it cannot outlive
the test.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_START_S = 60.0


@contextlib.contextmanager
def llama_server(
    model: str | Path, *, parallel: int = 1, ctx: int = 4096, threads: int = 2, **flags: Any
) -> Iterator[str]:
    """The server's URL. `flags` are attributes of xllamacpp.CommonParams; an enum's member is given
    by name, an attribute of an attribute with two underscores (`cpuparams__poll=0`)."""
    settings = {
        "model__path": str(model),
        "port": 0,
        "n_ctx": ctx,
        "n_parallel": parallel,
        "cpuparams__n_threads": threads,
        "cpuparams_batch__n_threads": threads,
        **flags,
    }
    child = subprocess.Popen(
        [sys.executable, __file__, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    watchdog = threading.Timer(_START_S, child.kill)
    watchdog.start()
    try:
        assert child.stdout is not None
        url = ""
        for line in child.stdout:
            if line.startswith("listening "):
                url = line.split()[1]
                break
        watchdog.cancel()
        if not url:
            raise RuntimeError(f"llama.cpp ended with {child.wait(10)} before it listened")
        yield url
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def llama_post(url: str, path: str, body: dict[str, Any], timeout_s: float = 60.0) -> Any:
    """The decoded answer of one POST; a status over 399 raises with the body in the message."""
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url + path, data=data, headers=headers)  # noqa: S310 - our own child's URL
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - our own child's URL
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path}: {error.code} {error.read()!r}") from error


def llama_tokenize(url: str, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
    body = {"content": text, "add_special": add_special, "parse_special": parse_special}
    return list(llama_post(url, "/tokenize", body)["tokens"])


def _serve(settings: dict[str, Any]) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    for name, value in settings.items():
        *parents, leaf = name.split("__")
        owner: Any = params
        for parent in parents:
            owner = getattr(owner, parent)
        kind = type(getattr(owner, leaf))
        setattr(owner, leaf, getattr(kind, value) if isinstance(value, str) and kind is not str else value)
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
