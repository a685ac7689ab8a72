"""Where compiled kernels are kept where a document does not say: what the service manager made, or the usual places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SYSTEM_CACHE = Path("/var/cache/halogend")
PLACES = f"CACHE_DIRECTORY, else {SYSTEM_CACHE} where it can be written, else $XDG_CACHE_HOME/halogend; there: kernels"


def kernel_cache(environ: Mapping[str, str], system: Path = SYSTEM_CACHE) -> Path | None:
    """CACHE_DIRECTORY may name several, divided by colons: the first is ours (systemd.exec(5)). None where there is
    no such place."""
    if made := environ.get("CACHE_DIRECTORY", "").partition(":")[0]:
        return Path(made) / "kernels"
    if os.access(system if system.exists() else system.parent, os.W_OK):
        return system / "kernels"
    if home := environ.get("XDG_CACHE_HOME"):
        return Path(home) / "halogend/kernels"
    if home := environ.get("HOME"):
        return Path(home) / ".cache/halogend/kernels"
    return None
