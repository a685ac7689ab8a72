"""How the C library, OpenMP and oneDNN are set up in every worker process, whoever starts it: the daemon, or a
measurement that wants what the daemon gets. They read it once, when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

WORKER_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        # Weights lie in huge pages: a decode step reads all of them, and takes about a tenth less time.
        # What the loading threads have given back is one heap with what the serving thread takes.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1",
        # Idle threads sleep instead of spinning: a load, a text process or the daemon on one of the cores would
        # otherwise make every step of an engine wait ten times as long (docs/benchmarks.md).
        "OMP_WAIT_POLICY": "passive",
        # Machine code that oneDNN, and torch's own cache before it, keep of products they have seen: half a MiB
        # each, and each number of rows and of threads is another. Left alone they keep 1024.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "160",
        "LRU_CACHE_CAPACITY": "32",
    }
)

_INTERPRETER = {"TRITON_INTERPRET": "1"}
_SAME_NUMBERS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the system counts them, not by speed


def backend_environment(backend: str, device: str) -> dict[str, str]:
    """What an engine needs besides. Triton asks once, when it is imported, whether kernels are compiled or
    interpreted: on a processor they are interpreted."""
    if device.partition(":")[0] != "cpu":
        return dict(_SAME_NUMBERS)
    return dict(_INTERPRETER) if backend == "triton" else {}
