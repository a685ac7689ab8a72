"""What a swap takes and gives back, as it was told before and as the kernel counts it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.live import Live, document, live
from support.ports import free_port
from support.tiny_models import tiny_gemma3, tiny_llama

from halogend.control.held import held_bytes

MIB = 1 << 20
POOLS = {
    "tiny": {"kv_cache_bytes": "4MiB"},
    "tiny in float32": {"kv_cache_bytes": "2MiB", "precision": "fp32", "max_model_len": 256, "max_batch": 24},
    "real": {"kv_cache_bytes": "52MiB", "max_model_len": 2048, "max_batch": 16},
}


class Most:
    """The most that all children of a daemon held at once."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._ended = threading.Event()

    def watch(self) -> None:
        while not self._ended.wait(0.05):
            self.bytes = max(self.bytes, _held(self._pid))

    def end(self) -> None:
        self._ended.set()


def _held(daemon: int) -> int:
    """Of its children and theirs, not of the daemon."""
    children = [int(each) for path in Path(f"/proc/{daemon}/task").glob("*/children") for each in _words(path)]
    return sum(held_bytes(children).values())


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


@contextmanager
def most_of(daemon: Live) -> Iterator[Most]:
    most = Most(daemon.pid)
    thread = threading.Thread(target=most.watch)
    thread.start()
    try:
        yield most
    finally:
        most.end()
        thread.join()


def use(daemon: Live) -> None:
    for number in range(6):
        body = {"model": "chat", "prompt": "alpha beta " * (number + 1), "max_tokens": 16, "temperature": 0}
        assert httpx.post(f"{daemon.url}/v1/completions", json=body, timeout=120).status_code == 200


def last_swap(daemon: Live) -> dict[str, dict[str, Any]]:
    """The steps of the newest change that loaded something, by name."""
    for each in daemon.receipts():
        _, receipt = daemon.command("receipts", each["id"])
        for record in receipt["models"]:
            steps = {step["name"]: {**step, **step.get("detail", {})} for step in record["steps"]}
            if {"load", "reclaim"} <= steps.keys():
                return steps
    raise AssertionError("nothing was swapped")


@pytest.fixture
def tiny(tmp_path: Path) -> list[Path]:
    return [tiny_llama(tmp_path / "a.gguf", layers=2).path, tiny_gemma3(tmp_path / "b.gguf", layers=2).path]


@pytest.fixture
def real(smollm2: Path, gemma: Path) -> list[Path]:
    return [smollm2, gemma]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("models", ["tiny", "tiny in float32", pytest.param("real", marks=pytest.mark.models)])
def test_l8_a_swap_takes_what_was_planned_and_gives_back_what_was_held(
    models: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of each reclaim within 2 per cent or 16 MiB, of each plan's peak within 5 per cent."""
    first, second = request.getfixturevalue(models.partition(" ")[0])
    port = free_port()

    def text(path: Path) -> str:
        return document(port, {"name": "chat", "model": str(path), **POOLS[models]})

    with live(tmp_path, text(first), port) as daemon:
        daemon.until_serving()
        use(daemon)
        rows = []
        for path in (second, first, second):
            (tmp_path / "next.yaml").write_text(text(path))
            _, plan = daemon.command("plan", str(tmp_path / "next.yaml"))
            with most_of(daemon) as most:
                daemon.write(text(path))
                daemon.reload("closed")
            steps = last_swap(daemon)
            planned = sum(device["peak"]["total_bytes"] for device in plan["devices"])
            rows.append((planned, most.bytes, steps["reclaim"]["expected_bytes"], steps["reclaim"]["returned_bytes"]))
            use(daemon)
        for planned, held, expected, returned in rows:
            peak, came_back = (
                f"{planned >> 20} planned, {held >> 20} held",
                f"{expected >> 20} expected, {returned >> 20}",
            )
            print(f"{models}: peak {peak}; reclaim {came_back} returned (MiB)")
        for planned, held, expected, returned in rows:
            assert abs(expected - returned) <= max(0.02 * expected, 16 * MIB)
            assert abs(held / planned - 1) <= 0.05
