"""What a replica is made from, whole before its processes start. What it learns as it runs is the replica's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from halogend.control.process import Host
from halogend.wire.environment import backend_environment
from halogend.wire.specs import EngineSpec, TextSpec


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """Frozen before the processes start. `cores` are those they run on; none: all. `weight` is its part of the
    requests beside other replicas, `fingerprint` that of the checkpoint that is meant. `environ` is what makes the
    engine see its device alone."""

    model: str
    text: TextSpec
    engine: EngineSpec
    progress_timeout_s: float
    warmup_prompt: str
    cores: tuple[int, ...] = ()
    fingerprint: str = ""
    device: str = ""
    weight: float = 1.0
    environ: tuple[tuple[str, str], ...] = ()

    def engine_environ(self, host: Host) -> dict[str, str]:
        """All that its engine's process finds."""
        return environ_of(host, self.engine.threads, self.engine.backend, self.engine.device, self.environ)


def environ_of(host: Host, threads: int, backend: str, device: str, sees: Iterable[tuple[str, str]]) -> dict[str, str]:
    """All that an engine's process finds. `device` is what it calls its own; `sees` makes it see that one alone."""
    return host.child_environ(threads) | backend_environment(backend, device) | dict(sees)
