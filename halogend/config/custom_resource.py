"""The spec of a HalogenModel: the fields of one model, and what Kubernetes needs to know of its pods.

Owns which of a model's fields a HalogenModel has and how its spec becomes the entry `models[0]` of a document.
The language is the document's; what differs, differs because Kubernetes' schemas know no field that takes a word
or a mapping:

    device               a list of texts, without weights; a pod has one `cpu`, since nothing divides its host
    watermarks, long_prompt    a mapping with `enabled: false` in place of the word `off`
    probation            a mapping, or left out
    name                 the HalogenModel's own where it is left out
    weight               not there: a pod serves one model, there is nothing to share an alias with

Must never know the operator, a manifest or a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, WithJsonSchema, model_validator
from pydantic_core import ErrorDetails

from halogend.config import values
from halogend.config.custom_resource_parts import (
    MOST_LABELS,
    MOST_PULL_SECRETS,
    MOST_TOLERATIONS,
    MOST_VOLUMES,
    AccessSpec,
    ImageName,
    LabelKey,
    LabelValue,
    LocalObject,
    ResourcesSpec,
    ServiceSpec,
    TolerationSpec,
    UpdateSpec,
    VolumeSpec,
    each_once,
    tupled,
)
from halogend.config.devices import DeviceList, DeviceRef
from halogend.config.fields import GENERATION, IDENTITY, LIVE, key_of, setting
from halogend.config.kinds import Name
from halogend.config.model import ModelConfig
from halogend.config.policy import LongPromptConfig, WatermarkConfig
from halogend.config.replacing import ProbationConfig
from halogend.config.unavailable import LATER

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {"weight": "a pod serves one model, which shares its aliases with no other"}
)
_SWITCHED = ("watermarks", "long_prompt")
_ACCELERATORS = "|".join(kind for kind in values.DEVICE_KINDS if kind != "cpu")
_DEVICE_PATTERN = rf"^(auto|cpu(:0)?|({_ACCELERATORS})(:(0|[1-9][0-9]{{0,3}}))?)$"
_DEVICES = {
    "type": "array",
    "items": {"type": "string", "pattern": _DEVICE_PATTERN, "maxLength": 32},
    "minItems": 1,
    "maxItems": 64,
    "x-accepts": "a list of devices such as [cuda:0]",
}
_ENABLED = "Whether it is in force. The document says `off` for `false`."


class SwitchedWatermarks(WatermarkConfig):
    """Shares of the pool in use above which admission is choosy, and stops."""

    enabled: bool = setting(_ENABLED, LIVE, default=True)


class SwitchedLongPrompt(LongPromptConfig):
    """The lane of long prompts, which short requests pass by."""

    enabled: bool = setting(_ENABLED, LIVE, default=True)


class HalogenModelSpec(ModelConfig):
    """The spec. Fields in snake_case are the document's, those in camelCase Kubernetes'."""

    name: Name = setting(
        "What clients put in `model`. A change of it is a new generation under the new name.",
        IDENTITY,
        default="",
        unset="the name of the HalogenModel",
    )
    device: Annotated[DeviceList, WithJsonSchema(_DEVICES)] = setting(
        "What it runs on within a pod, numbered from 0 there: `[cuda:0]`, or several under `exec_mode: "
        "data_parallel`. Their number is what a pod asks for of the node's accelerators.",
        GENERATION,
        default=(DeviceRef(id="auto"),),
    )
    watermarks: SwitchedWatermarks = Field(
        default=SwitchedWatermarks(),
        description="Shares of the pool in use above which admission is choosy, and stops.",
    )
    long_prompt: SwitchedLongPrompt = Field(default=SwitchedLongPrompt(), description="The lane of long prompts.")
    probation: ProbationConfig | None = setting(
        "Keep the generation before for a while after the switch, and go back to it if the new one dies or fails too "
        "many requests. Its memory is taken until then; any newer edit ends it.",
        LIVE,
        default=None,
        unset="off",
        section=True,
    )
    replicas: int = Field(
        default=1, ge=0, le=1000, description="Pods, each with the whole model. 0 is none, and meant."
    )
    image: ImageName | None = Field(
        default=None,
        description="The daemon's image. A change replaces the pods. Absent: that of the operator's release.",
    )
    image_pull_secrets: tuple[LocalObject, ...] = Field(
        default=(),
        alias="imagePullSecrets",
        description="Secrets that open the registries of images. A change replaces the pods.",
        max_length=MOST_PULL_SECRETS,
    )
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What a pod asks of its node. A change replaces the pods."
    )
    node_selector: dict[LabelKey, LabelValue] = Field(
        default={},
        alias="nodeSelector",
        description="Labels a node must have. A change replaces the pods.",
        max_length=MOST_LABELS,
    )
    tolerations: tuple[TolerationSpec, ...] = Field(
        default=(),
        description="Taints of nodes that are no hindrance. A change replaces the pods.",
        max_length=MOST_TOLERATIONS,
    )
    volumes: Annotated[tuple[VolumeSpec, ...], AfterValidator(each_once)] = Field(
        default=(),
        description="Where the pods find models, mounted read-only. A change replaces the pods.",
        max_length=MOST_VOLUMES,
    )
    service: ServiceSpec = Field(default=ServiceSpec(), description="The Service in front of the pods.")
    auth: AccessSpec = Field(
        description="Who may use the model: `none: true`, or keys. Another Secret replaces the pods; its content "
        "does not."
    )
    update: UpdateSpec = Field(default=UpdateSpec(), description="How an edit goes to the pods.")

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_left_out(cls, value: Any) -> Any:
        for key in LEFT_OUT.keys() & value.keys() if isinstance(value, Mapping) else ():
            raise ValueError(f"has no `{key}`: {LEFT_OUT[key]}")
        return value


DOCUMENT_KEYS: tuple[str, ...] = tuple(
    key_of(name, info) for name, info in ModelConfig.model_fields.items() if name not in LEFT_OUT
)
KUBERNETES_KEYS: tuple[str, ...] = tuple(
    key_of(name, info) for name, info in HalogenModelSpec.model_fields.items() if name not in ModelConfig.model_fields
)


def read_spec(raw: Mapping[str, Any]) -> tuple[HalogenModelSpec | None, tuple[str, ...]]:
    """`spec` as the API server gives it -> the spec, or what is wrong with it, each beginning with its place:
    `spec.volumes[0].mountPath: must ...`. Contradictions between the model's fields are the document's rules'."""
    own = {key: value for key, value in raw.items() if key not in LATER[ModelConfig]}
    try:
        return HalogenModelSpec.model_validate(tupled(own)), ()
    except ValidationError as error:
        return None, _problems(error.errors(include_url=False), raw)


def model_entry(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`spec` -> the entry of `models` that a document has for it, as it was written: plain JSON values, nothing
    filled in but `name` where the spec has none. Keys that are neither the document's nor Kubernetes' stay, so
    that the document's reader refuses them by name."""
    entry = {key: value for key, value in raw.items() if key not in KUBERNETES_KEYS}
    for key in _SWITCHED:
        section = entry.get(key)
        if isinstance(section, Mapping) and "enabled" in section:
            rest = {inner: value for inner, value in section.items() if inner != "enabled"}
            entry[key] = values.OFF if section["enabled"] is False else rest
    return {"name": name, **entry}


def _problems(faults: Sequence[ErrorDetails], raw: Any) -> tuple[str, ...]:
    """By place, a line each: a union gives several faults for one, and a list whose entries were refused also counts
    as too short."""
    told: dict[str, list[str]] = {}
    for details in faults:
        told.setdefault(_place(details, raw), []).append(_text(details))
    short = {_place(details, raw) for details in faults if details["type"] == "too_short"}
    hollow = {place for place in short if any(other.startswith(f"{place}[") for other in told)}
    return tuple(
        f"{place}: {', or '.join(dict.fromkeys(texts))}" for place, texts in told.items() if place not in hollow
    )


def _place(details: ErrorDetails, raw: Any) -> str:
    """As far as the spec goes: the schema's own steps, such as a union's, are none."""
    place, here = "spec", raw
    for step in details["loc"]:
        if isinstance(here, list) and isinstance(step, int):
            place, here = f"{place}[{step}]", here[step]
        elif isinstance(here, Mapping) and step in here:
            place, here = f"{place}.{step}", here[step]
    return f"{place}.{details['loc'][-1]}" if details["type"] == "missing" else place


def _text(details: ErrorDetails) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return "is no field of a HalogenModel"
    _, is_plain, rest = details["msg"].partition(" should ")
    return f"must {rest}" if is_plain else details["msg"].removeprefix("Value error, ")
