"""What a container runtime does for one container: its file system, its user, its environment, its first program.

A mount namespace with a root of its own: the system's programs, this checkout and its Python stand for the image, the
volumes are where the pod spec says, and nothing else of the machine is there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.pod_entry import ADDRESS

ROOT = Path(__file__).parents[2]
_SYSTEM = ("bin", "sbin", "lib", "lib64", "lib32", "usr")
_ETC = ("passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
_UNSHARE = ("unshare", "--mount", "--propagation", "private")


@dataclass(frozen=True, slots=True)
class Mount:
    source: Path
    path: str
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class Box:
    """One container of a pod. `security` is the container's context over the pod's."""

    folder: Path
    address: str
    mounts: Sequence[Mount]
    arguments: Sequence[str]
    environ: Mapping[str, str]
    security: Mapping[str, Any]

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [*_unshare(), "/bin/sh", "-ec", self._script()]
        with log.open("ab") as out:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def _script(self) -> str:
        root = str(self.folder)
        lines = [f"mount -t tmpfs -o mode=755 pod {shlex.quote(root)}", f"cd {shlex.quote(root)}", *_system()]
        for mount in sorted(self.mounts, key=lambda each: each.path):
            lines += _bind(mount.source, mount.path)
            if mount.is_read_only:
                lines.append(f"mount -o remount,bind,ro,nosuid,nodev .{shlex.quote(mount.path)}")
        for source, path in _image().items():
            lines += _bind(source, path)
        if self.security.get("readOnlyRootFilesystem"):
            lines.append("mount -o remount,ro .")
        return "\n".join([*lines, f"exec {shlex.join(self._command())}"])

    def _command(self) -> list[str]:
        user, group = self._user
        who = [f"--userspec={user}:{group}", f"--groups={self.security.get('fsGroup', group)}"] if user else []
        return ["chroot", *who, ".", *self._program(self.arguments)]

    def execute(self, pid: int, words: Sequence[str]) -> tuple[int, str]:
        """Exit status and output of `halogend WORDS` beside the container's process `pid`, as `kubectl exec` has it."""
        user, group = self._user
        who = [f"--setuid={user}", f"--setgid={group}"] if user else ["--user", "--preserve-credentials"]
        command = ["nsenter", f"--target={pid}", "--mount", "--root", "--wd=/", *who, *self._program(words)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    @property
    def _user(self) -> tuple[int | None, int]:
        """None: whoever runs the tests."""
        user = self.security.get("runAsUser") if os.geteuid() == 0 else None
        return user or None, int(self.security.get("runAsGroup", 0))

    def _program(self, words: Sequence[str]) -> list[str]:
        image = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", ADDRESS: self.address}
        environ = [f"{name}={value}" for name, value in (image | dict(self.environ)).items()]
        return ["/usr/bin/env", "-i", *environ, sys.executable, "-P", str(ROOT / "tests/support/pod_entry.py"), *words]


@cache
def why_no_box() -> str | None:
    """Why this machine can have no such container; None where it can."""
    if shutil.which("unshare") is None or shutil.which("chroot") is None:
        return "no util-linux here"
    done = subprocess.run([*_unshare(), "true"], check=False, capture_output=True, text=True)
    return None if done.returncode == 0 else f"this machine gives no mount namespace: {done.stderr.strip()}"


def _unshare() -> tuple[str, ...]:
    return _UNSHARE if os.geteuid() == 0 else (*_UNSHARE, "--user", "--map-root-user")


def _system() -> list[str]:
    lines = []
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            lines.append(f"cp -P {path} {name}")
        elif path.is_dir():
            lines += _bind(path, str(path))
    for name in ("proc", "sys", "dev"):
        lines += _bind(Path("/", name), f"/{name}")
    etc = [f"/etc/{name}" for name in _ETC if Path("/etc", name).exists()]
    return [*lines, "mkdir -p etc tmp nonexistent", f"cp -r --no-dereference {' '.join(etc)} etc/"]


def _bind(source: Path, path: str) -> list[str]:
    here = f".{shlex.quote(path)}"
    return [f"mkdir -p {here}", f"mount --rbind {shlex.quote(str(source))} {here}"]


def _image() -> dict[Path, str]:
    """What of the machine stands for the image, and where: this checkout, and the Python that runs the test. Where
    another checkout is the one that is installed, this one's code lies in its place."""
    paths = {
        path: str(path) for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix)) if path.parts[:2] != ("/", "usr")
    }
    origin = json.loads(importlib.metadata.distribution("halogend").read_text("direct_url.json") or "{}")
    installed = Path(origin.get("url", "").removeprefix("file://"))
    if origin.get("dir_info", {}).get("editable") and installed != ROOT:
        paths |= {ROOT / name: str(installed / name) for name in ("halogend", "kernels")}
    return paths
