"""Who may use a listener, as the document says it: API keys and certificates, each by its file.

Holds paths only. A secret never stands in the document; what the files hold is the control package's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from halogend.config import values
from halogend.config.fields import Apply, setting
from halogend.config.kinds import Name
from halogend.config.section import Section

OPEN = "none"
MAX_KEYS = 256
_HOUR_S = 3600

FilePath = Annotated[str, Field(min_length=1, max_length=4096)]
Scope = Literal["infer", "admin"]


class KeyConfig(Section):
    """One API key. Its value stands in a file."""

    name: Name = setting(
        "What receipts, logs and status call it, and its identity when its file changes.", Apply.IDENTITY
    )
    file: FilePath = setting(
        "Path of the file that holds the key and nothing else; white space around it does not count. Under systemd "
        "`${CREDENTIALS_DIRECTORY}/NAME`. A relative path starts at the daemon's working directory.",
        Apply.LIVE,
        path=True,
    )
    scopes: tuple[Scope, ...] = setting(
        "What it opens: `infer` the inference listener, `admin` an admin listener on TCP. Neither implies the other.",
        Apply.LIVE,
        default=("infer",),
        min_length=1,
        max_length=2,
    )
    classes: tuple[Name, ...] = setting(
        "Classes of `eviction.sessions` that its requests may name in `X-Halogen-Class`.",
        Apply.LIVE,
        default=(),
        max_length=64,
    )
    rpm: Annotated[int, Field(ge=1, le=10_000_000)] | Literal["off"] = setting(
        "Requests a minute; over it: 429 with Retry-After. They come back evenly, and a minute's worth may come at "
        "once.",
        Apply.LIVE,
        default="off",
        unit="requests",
    )
    max_concurrent: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["off"] = setting(
        "Requests that may wait and run at once; over it: 429 with Retry-After.",
        Apply.LIVE,
        default="off",
        unit="requests",
    )
    weight: float = setting(
        "Its share of a model beside other keys whose requests wait, counted in tokens.",
        Apply.LIVE,
        default=1.0,
        gt=0,
        le=1000,
    )


class AuthConfig(Section):
    """API keys. Without any it is `none`: open access, and meant."""

    keys: tuple[KeyConfig, ...] = Field(
        default=(), description="The keys that are accepted.", min_length=1, max_length=MAX_KEYS
    )
    infer: Literal["none"] | None = setting(
        "`none` states that open access to the inference listener is meant, and that the keys are for an admin "
        "listener on TCP alone.",
        Apply.LIVE,
        default=None,
        unset="a key with the scope `infer`",
    )
    overlap_s: float = setting(
        "How long a key's previous value is accepted after its file changed, so that clients can change over. A key "
        "that is removed ends at once; 0 ends a changed one at once too.",
        Apply.LIVE,
        default=300.0,
        unit="s",
        ge=0,
        le=7 * 24 * _HOUR_S,
    )

    @property
    def is_open(self) -> bool:
        return not self.keys

    @property
    def lets_all_infer(self) -> bool:
        """May everybody use the models, whatever keys there are?"""
        return self.is_open or self.infer == OPEN


class TlsConfig(Section):
    """A certificate and its private key, in PEM."""

    cert: FilePath = setting(
        "Path of the certificate, the intermediate ones behind it in the same file.", Apply.LIVE, path=True
    )
    key: FilePath = setting("Path of its private key, without a pass phrase.", Apply.LIVE, path=True)


def stated_auth(value: Any) -> Any:
    """`none` -> AuthConfig without keys; a mapping passes when it has `keys`."""
    if value == OPEN:
        return AuthConfig()
    if not isinstance(value, dict) or "keys" not in value:
        found = "" if isinstance(value, dict) else f", found {values.shown(value)}"
        raise ValueError(f"must be {OPEN} or have keys: [{{name: ..., file: ...}}]{found}")
    return value
