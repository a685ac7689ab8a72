"""Folders as editors, kubelet and file systems leave them, and a file source that watches one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from halogend.config.parts import unpack
from halogend.control.file_source import FileSource, Timing
from halogend.control.source import Content, SourceError
from halogend.control.source_watch import Watch

MakeWatch = Callable[[Path, Callable[[], object]], Watch]


@contextlib.asynccontextmanager
async def watching(
    path: Path, timing: Timing, make_watch: MakeWatch = Watch
) -> AsyncIterator[tuple[FileSource, asyncio.Queue[Content]]]:
    """The source and what it offers; what is there at first counts as seen."""
    offered: asyncio.Queue[Content] = asyncio.Queue()
    source = FileSource(path, offered.put_nowait, timing, make_watch)
    with contextlib.suppress(SourceError):
        source.seen(source.read())
    source.start()
    try:
        yield source, offered
    finally:
        await source.stop()


async def next_of(offered: asyncio.Queue[Content]) -> Content:
    return await asyncio.wait_for(offered.get(), 10)


async def nothing_more(offered: asyncio.Queue[Content], for_s: float = 0.3) -> None:
    with contextlib.suppress(TimeoutError):
        content = await asyncio.wait_for(offered.get(), for_s)
        raise AssertionError(f"offered: {content.data!r}")


def files_of(content: Content) -> dict[str, str]:
    """Of a directory: its texts by name."""
    found = unpack(content.data)
    assert found is not None
    return {part.name: part.data.decode() for part in found}


class ConfigMap:
    """kubelet's three levels: NAME -> ..data/NAME, ..data -> ..2026_N, replaced by rename. Files that are
    new get their link after the swap, those that are gone lose it after that."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        self._number = 0
        self.swap(**files)

    def swap(self, *, keeps_old: bool = False, **files: str) -> None:
        """Names without `.yaml`."""
        self._number += 1
        old = (self.folder / "..data").resolve()
        data = self.folder / f"..2026_{self._number}"
        data.mkdir()
        for name, text in files.items():
            (data / f"{name}.yaml").write_text(text)
        (self.folder / "..data_tmp").symlink_to(data.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        for name in files:
            link = self.folder / f"{name}.yaml"
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}.yaml")
        for link in self.folder.glob("*.yaml"):
            if link.stem not in files:
                link.unlink()
        if self._number > 1 and not keeps_old:
            for each in old.iterdir():
                each.unlink()
            old.rmdir()
