"""kubectl, run against the stand-in for the API server with a home and a cache of its own."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


class Kubectl:
    """`await kubectl("get", "hm")` gives (exit status, stdout, stderr); `manifest` goes in by its standard input."""

    def __init__(self, server: str, home: Path) -> None:
        self._server = server
        self._home = home

    async def __call__(self, *words: str, manifest: dict[str, Any] | None = None) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            "kubectl", "--server", self._server, "--cache-dir", str(self._home / "cache"), *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self._home), "KUBECONFIG": "/dev/null"},
        )  # fmt: skip
        said, complained = await process.communicate(None if manifest is None else yaml.safe_dump(manifest).encode())
        return process.returncode, said.decode(), complained.decode()
