"""What a HalogenModel says to Kubernetes about its pods, beside the fields of a model.

Owns the sections of Kubernetes' own: spelt as Kubernetes spells (camelCase), bounded, with their defaults.
Knows no cluster and no manifest; what is made of them is the operator's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from halogend.config.kinds import Name
from halogend.config.section import Section
from halogend.config.values import DAY_S

MOST_VOLUMES = 16
MOST_API_KEYS = 64
MOST_TOLERATIONS = 64
MOST_LABELS = 64
MOST_RESOURCES = 32
MOST_PULL_SECRETS = 16
_MAX_PORT = 65_535

_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_DATA_KEY_PATTERN = r"^[-._a-zA-Z0-9]+$"
_MOUNT_PATTERN = r"^/[^:]*[^:/]$"
_QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_PERCENT_PATTERN = r"^([1-9][0-9]?|100)%$"

DnsLabel = Annotated[str, Field(pattern=_LABEL_PATTERN, max_length=63)]
ObjectName = Annotated[str, Field(pattern=_SUBDOMAIN_PATTERN, max_length=253)]
DataKey = Annotated[str, Field(pattern=_DATA_KEY_PATTERN, max_length=253)]
ImageName = Annotated[str, Field(min_length=1, max_length=1024)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]
Quantity = Annotated[
    Annotated[int, Field(ge=0, le=1 << 53)] | Annotated[str, Field(pattern=_QUANTITY_PATTERN, max_length=32)],
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 1 << 53},
                {"type": "string", "pattern": _QUANTITY_PATTERN, "maxLength": 32},
            ],
            "x-accepts": "a quantity such as 4, 500m or 16Gi",
        }
    ),
]
Share = Annotated[
    Annotated[int, Field(ge=1, le=10_000)] | Annotated[str, Field(pattern=_PERCENT_PATTERN, max_length=4)],
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 10_000},
                {"type": "string", "pattern": _PERCENT_PATTERN, "maxLength": 4},
            ],
            "x-accepts": "a number of pods of at least 1, or a share such as 25%",
        }
    ),
]


class LocalObject(Section):
    """An object of the same namespace."""

    name: ObjectName = Field(description="Its name.")


class ResourcesSpec(Section):
    """What a pod asks of its node and what it may take, as in any container. Accelerators that are not named here
    are asked for by the number of `device`."""

    limits: dict[LabelKey, Quantity] = Field(
        default={}, description="The most it may take of each resource.", max_length=MOST_RESOURCES
    )
    requests: dict[LabelKey, Quantity] = Field(
        default={}, description="What is kept for it of each resource.", max_length=MOST_RESOURCES
    )


class TolerationSpec(Section):
    """A taint of nodes that is no hindrance, as in any pod."""

    key: LabelKey | None = Field(default=None, description="Key of the taint; absent: every one.")
    operator: Literal["Exists", "Equal"] | None = Field(
        default=None, description="Whether `value` counts; absent: `Equal`."
    )
    value: LabelValue | None = Field(default=None, description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; absent: every one."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=1 << 31)] | None = Field(
        default=None, alias="tolerationSeconds", description="For how long a NoExecute is borne; absent: for good."
    )


class ClaimVolume(Section):
    """A volume claim that exists."""

    claim_name: ObjectName = Field(alias="claimName", description="Name of the PersistentVolumeClaim.")


class ImageVolume(Section):
    """An image of files, mounted as a volume."""

    reference: ImageName = Field(description="The image, such as registry.example/models/chat:3.")
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, alias="pullPolicy", description="When it is pulled; absent: as Kubernetes decides by its tag."
    )


class VolumeSpec(Section):
    """Where the pods find models: mounted read-only, a claim or an image."""

    name: DnsLabel = Field(description="Its name within the pods.")
    mount_path: Annotated[str, Field(pattern=_MOUNT_PATTERN, max_length=512)] = Field(
        alias="mountPath", description="Folder it is mounted at, absolute; `model` begins with it."
    )
    claim: ClaimVolume | None = Field(
        default=None, alias="persistentVolumeClaim", description="A PersistentVolumeClaim of the same namespace."
    )
    image: ImageVolume | None = Field(default=None, description="An image that holds the files.")

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if (self.claim is None) == (self.image is None):
            raise ValueError("must have one of persistentVolumeClaim and image")
        return self


class ServiceSpec(Section):
    """The Service in front of the pods."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP", description="Its type, as Kubernetes has them."
    )
    port: int = Field(default=80, ge=1, le=_MAX_PORT, description="Port of the inference API.")
    annotations: dict[LabelKey, Annotated[str, Field(max_length=4096)]] = Field(
        default={}, description="Annotations, as load balancers want them.", max_length=MOST_LABELS
    )
    monitor: bool = Field(default=False, description="Whether there is a ServiceMonitor for Prometheus' operator.")


class SecretKey(Section):
    """One entry of a Secret."""

    name: ObjectName = Field(description="Name of the Secret, in the same namespace.")
    key: DataKey = Field(description="The entry that holds the API key and nothing else.")


class ApiKeySpec(Section):
    """One API key of the inference API. Its value stands in a Secret."""

    name: Name = Field(description="What logs, metrics and status call it.")
    secret: SecretKey = Field(alias="secretKeyRef", description="Where its value is.")
    rpm: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Requests a minute and pod; over it: 429 with Retry-After. Absent: no limit."
    )
    max_concurrent: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Requests at once and pod; over it: 429 with Retry-After. Absent: no limit."
    )
    weight: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        default=None,
        description="Its share beside other keys whose requests wait, counted in tokens. Absent: 1.",
    )
    classes: tuple[Name, ...] = Field(
        default=(),
        description="Classes of `eviction.sessions` that its requests may name in X-Halogen-Class.",
        max_length=16,
    )


class AccessSpec(Section):
    """Who may use the model: keys, or nobody is asked and that is meant."""

    none: Literal[True] | None = Field(
        default=None, description="`true`: whoever reaches the Service may use the model, and that is meant."
    )
    keys: tuple[ApiKeySpec, ...] | None = Field(
        default=None, description="The API keys that are accepted.", min_length=1, max_length=MOST_API_KEYS
    )

    @model_validator(mode="after")
    def _is_stated(self) -> Self:
        if (self.none is None) == (self.keys is None):
            raise ValueError("must have one of none: true and keys")
        names = [key.name for key in self.keys or ()]
        if len(set(names)) != len(names):
            raise ValueError("must give each key a name of its own")
        return self


class UpdateSpec(Section):
    """How an edit goes to the pods."""

    max_unavailable: Share = Field(
        default=1,
        alias="maxUnavailable",
        description="Pods that may be in change at once, a number or a share of `replicas` (rounded down, at least "
        "one): an edit is given to so many running pods, and so many are replaced where it takes new ones.",
    )
    progress_deadline_s: int = Field(
        default=600,
        alias="progressDeadlineSeconds",
        ge=10,
        le=DAY_S,
        description="Seconds without progress after which an edit counts as stalled.",
    )


def each_once(volumes: tuple[VolumeSpec, ...]) -> tuple[VolumeSpec, ...]:
    """The volumes, or a ValueError where two have one name or one folder."""
    for what, values in (
        ("name", [each.name for each in volumes]),
        ("mountPath", [each.mount_path for each in volumes]),
    ):
        if len(set(values)) != len(values):
            raise ValueError(f"must give each volume a {what} of its own")
    return volumes


def tupled(value: Any) -> Any:
    """JSON's lists as tuples, all the way down."""
    if isinstance(value, list):
        return tuple(tupled(each) for each in value)
    return {key: tupled(each) for key, each in value.items()} if isinstance(value, dict) else value
