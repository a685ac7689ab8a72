"""Keys and certificates made for a test, by the `openssl` command."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from halogend.config.access import TlsConfig


@dataclass(frozen=True)
class Pair:
    """A certificate that vouches for itself, for 127.0.0.1 and localhost, and its key."""

    cert: Path
    key: Path

    @property
    def config(self) -> TlsConfig:
        return TlsConfig(cert=str(self.cert), key=str(self.key))

    @property
    def section(self) -> dict[str, str]:
        return {"cert": str(self.cert), "key": str(self.key)}

    def client(self) -> ssl.SSLContext:
        """A client that trusts this certificate alone."""
        return ssl.create_default_context(cafile=self.cert)

    def replace_with(self, other: Pair) -> None:
        """As renewal tools do: each file renamed over, the key after the certificate."""
        for old, new in ((self.cert, other.cert), (self.key, other.key)):
            beside = old.with_name(f".{old.name}.new")
            beside.write_bytes(new.read_bytes())
            beside.chmod(0o600)
            beside.rename(old)


def make_pair(folder: Path, name: str = "server", *options: str) -> Pair:
    """Valid from now for 30 days, unless the options of `openssl req` say otherwise."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-keyout", str(key), "-out", str(cert), "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-days", "30"]
    subprocess.run([*command, *(options or ("-nodes",))], check=True, capture_output=True)
    key.chmod(0o600)
    return Pair(cert, key)
