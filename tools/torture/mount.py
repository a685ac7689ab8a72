"""A ConfigMap as kubelet mounts it: three levels, one rename a change.

config.yaml -> ..data/config.yaml      ..data -> ..2026_11_29_07_30_00.1      ..2026_.../config.yaml
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path


class Mount:
    """`path` is the file a daemon is given. Single writer."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "config.yaml"
        self._folder = folder
        self._count = 0
        folder.mkdir()
        self._swap(text)
        self.path.symlink_to("..data/config.yaml")

    def write(self, text: str) -> None:
        """The new content all at once; the folder of the old one goes."""
        old = (self._folder / "..data").resolve()
        self._swap(text)
        shutil.rmtree(old)

    def _swap(self, text: str) -> None:
        self._count += 1
        version = self._folder / time.strftime(f"..%Y_%m_%d_%H_%M_%S.{self._count}")
        version.mkdir()
        (version / "config.yaml").write_text(text)
        beside = self._folder / "..data_tmp"
        beside.symlink_to(version.name)
        beside.rename(self._folder / "..data")
