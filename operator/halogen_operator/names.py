"""How things are called in a cluster: kinds, labels, annotations, ports, files of a pod. Constants alone."""

from __future__ import annotations

GROUP = "halogen.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "HalogenModel"
FIELD_MANAGER = "halogen-operator"
APP = "halogend"

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MODEL_LABEL = f"{GROUP}/model"
ENGINE_LABEL = "inference.networking.k8s.io/engine-type"
METRICS_NAMES = "vllm"
"""By the label an endpoint picker of the Gateway API inference extension knows under which names a pod has its metrics:
pods have them under these too."""

RENDERED_ANNOTATION = f"{GROUP}/rendered"
"""On every child: sha256 of the manifest without this line."""
TEMPLATE_ANNOTATION = f"{GROUP}/template"
"""On every pod: a digest of the template it came from. A pod with another one is about to be replaced."""
DEVICES_ANNOTATION = f"{GROUP}/devices"
"""On every pod: how many accelerators it has."""
PLAN_ONLY_ANNOTATION = f"{GROUP}/plan-only"

CONTAINER = "halogend"
VOLUME_PREFIX = "halogend-"
"""Of the names of a pod's own volumes."""
HTTP_PORT_NAME, HTTP_PORT = "http", 8000
ADMIN_PORT_NAME, ADMIN_PORT = "admin", 8443

DOCUMENT_KEY = "halogend.yaml"
DOCUMENT_FOLDER = "/etc/halogend"
ADMIN_FOLDER = "/etc/halogend-admin"
KEYS_FOLDER = "/etc/halogend-keys"
STATE_FOLDER = "/var/lib/halogend"
CACHE_FOLDER = "/var/cache/halogend"
RUNTIME_FOLDER = "/run/halogend"
TMP_FOLDER = "/tmp"  # noqa: S108  an emptyDir of the pod's own
OWN_FOLDERS = (
    DOCUMENT_FOLDER,
    ADMIN_FOLDER,
    KEYS_FOLDER,
    STATE_FOLDER,
    CACHE_FOLDER,
    RUNTIME_FOLDER,
    TMP_FOLDER,
)

ADMIN_KEY, CA_CERT, CA_KEY, TLS_CERT, TLS_KEY = "admin.key", "ca.crt", "ca.key", "tls.crt", "tls.key"
OPERATOR_KEY_NAME = "halogen-operator"
"""What receipts and logs of a daemon call the operator."""

PRE_STOP_S = 5
"""Between a pod's leaving the endpoints and its SIGTERM: proxies have heard of it by then."""
DRAIN_LIMIT_S = 900
"""The most that `drain_timeout_s: auto` is."""
GRACE_MARGIN_S = 30
"""For what comes after the drain: answers are closed, engines end."""


def document_name(name: str) -> str:
    return f"{name}-document"


def admin_name(name: str) -> str:
    return f"{name}-admin"


def server_name(name: str, namespace: str) -> str:
    """What the certificate of a HalogenModel's pods is for. Nobody resolves it: the operator connects to a pod's
    address and asks for this name."""
    return f"{name}.{namespace}.halogend"
