"""Volumes of ConfigMaps and Secrets as a kubelet lays them out: a folder whose files change all at once."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAMED = {"configMap": "name", "secret": "secretName"}


class NotYetError(Exception):
    """A container cannot start yet; `reason` is what its status says while it waits."""

    MOUNTS = "ContainerCreating"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def content(volume: Mapping[str, Any], configs: Mapping[str, Any], secrets: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a volume, or of one source of a projected one, from the objects by name. Raises NotYetError."""
    if "projected" in volume:
        parts = [content(each, configs, secrets) for each in volume["projected"]["sources"]]
        return {name: data for part in parts for name, data in part.items()}
    kind = next(key for key in _NAMED if key in volume)
    source = volume[kind]
    name = source.get(_NAMED[kind]) or source["name"]
    found = (configs if kind == "configMap" else secrets).get(name)
    if found is None:
        raise NotYetError(NotYetError.MOUNTS, f"MountVolume.SetUp failed: {kind} {name!r} not found")
    return _chosen(_files(found), source.get("items"))


def _files(body: Mapping[str, Any]) -> dict[str, bytes]:
    data = body.get("data", {})
    if body["kind"] == "Secret":
        return {name: base64.b64decode(text) for name, text in data.items()}
    return {name: text.encode() for name, text in data.items()}


def _chosen(files: dict[str, bytes], items: list[Mapping[str, str]] | None) -> dict[str, bytes]:
    if items is None:
        return files
    missing = [item["key"] for item in items if item["key"] not in files]
    if missing:
        raise NotYetError(NotYetError.MOUNTS, f"references non-existent keys: {missing}")
    return {item["path"]: files[item["key"]] for item in items}


def mode_of(volume: Mapping[str, Any]) -> int:
    source = next(volume[key] for key in (*_NAMED, "projected") if key in volume)
    return int(source.get("defaultMode", 0o644))


def swap(folder: Path, files: Mapping[str, bytes], mode: int, group: int | None) -> None:
    """`..data` leads to the new files; nothing happens where they are there already. What it led to before stays,
    for who still reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    if data.exists() and _read(data) == dict(files):
        return
    version = folder / f"..v{sum(path.name.startswith('..v') for path in folder.iterdir())}"
    version.mkdir()
    for name, text in files.items():
        path = version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        if group is not None and os.geteuid() == 0:
            os.chown(path, -1, group)
        path.chmod(mode if group is None else mode | 0o440)
    beside = folder / "..data_tmp"
    beside.symlink_to(version.name)
    beside.rename(data)
    tops = {Path(name).parts[0] for name in files}
    for name in tops:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for path in folder.iterdir():
        if path.is_symlink() and path.name not in {data.name, *tops}:
            path.unlink()


def _read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
