"""A llama.cpp server in a child process, as an oracle and a peer to measure against.

    with llama_server(model, ctx=2048, flash_attn_type="LLAMA_FLASH_ATTN_TYPE_DISABLED") as url:
        ids = llama_tokenize(url, "text", add_special=True, parse_special=False)

Run as a program it is that child: it serves until its standard input ends, so it cannot outlive
the test.
"""

from __future__ import annotations

import contextlib
import ctypes
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


def llama_end_ids(model: str | Path) -> frozenset[int]:
    """Every token that llama.cpp takes for an end of generation, asked through its C API in a child
    process."""
    answer = subprocess.run(
        [sys.executable, __file__, "--end-ids", str(model)],
        capture_output=True,
        text=True,
        timeout=_START_S,
        check=True,
    )
    return frozenset(json.loads(answer.stdout.splitlines()[-1]))


class _ModelParams(ctypes.Structure):
    """Larger than llama_model_params of any version; it travels by value, so its tail is ignored."""

    _fields_ = (("bytes", ctypes.c_char * 1024),)


def _print_end_ids(model: str) -> None:
    import xllamacpp

    library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("*.so"))))
    library.llama_model_default_params.restype = _ModelParams
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _ModelParams]
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    library.llama_model_get_vocab.restype = ctypes.c_void_p
    library.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
    library.llama_vocab_is_eog.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.llama_vocab_is_eog.restype = ctypes.c_bool
    loaded = library.llama_model_load_from_file(model.encode(), library.llama_model_default_params())
    vocab = library.llama_model_get_vocab(loaded)
    count = library.llama_vocab_n_tokens(vocab)
    print(json.dumps([token for token in range(count) if library.llama_vocab_is_eog(vocab, token)]), flush=True)


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
    if sys.argv[1] == "--end-ids":
        _print_end_ids(sys.argv[2])
    else:
        _serve(json.loads(sys.argv[1]))
