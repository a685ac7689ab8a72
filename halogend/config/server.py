"""The listeners, as the document says them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from halogend.config.access import OPEN, AuthConfig, TlsConfig, stated_auth
from halogend.config.fields import LISTENER, LIVE, setting
from halogend.config.kinds import AdminAddress, Host, MetricsCompat
from halogend.config.section import Section


class ServerConfig(Section):
    """The listeners."""

    host: Host = setting("Address the inference listener binds.", LISTENER, default="127.0.0.1")
    port: int = setting("Port of the inference listener.", LISTENER, default=8000, ge=1, le=65535)
    tls: TlsConfig | None = setting(
        "TLS of the inference listener. New connections take a changed certificate, open ones keep theirs.",
        LIVE,
        default=None,
        unset="plain HTTP",
        section=True,
    )
    admin: AdminAddress | None = setting(
        "Where the admin listener is: `unix:` and an absolute path, or `host:port`, which needs TLS and an API key "
        "with the scope `admin`.",
        LISTENER,
        default=None,
        unset="admin.sock in $RUNTIME_DIRECTORY, else in /run/halogend, or in $XDG_RUNTIME_DIR/halogend for a user who "
        "may not write there",
    )
    admin_tls: TlsConfig | None = setting(
        "TLS of an admin listener on TCP, where it has a certificate of its own.",
        LIVE,
        default=None,
        unset="that of `tls`",
        section=True,
    )
    auth: Annotated[AuthConfig | None, BeforeValidator(stated_auth)] = setting(
        "Who may use the models. `none` states that open access is meant; a listener beyond loopback needs keys or "
        "that word.",
        LIVE,
        default=None,
        unset="open on loopback, refused beyond it",
        section=True,
        word=OPEN,
    )
    ready: Literal["any", "all"] = setting(
        "Whether /readyz wants one model serving or all of them.", LIVE, default="any"
    )
    metrics_compat: MetricsCompat = setting(
        "`vllm`: /metrics has the values under vLLM's names too, for gateways and dashboards that know these.",
        LIVE,
        default=None,
        unset="off",
    )
