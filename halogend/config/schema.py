"""The document after parsing: one frozen value, every field concrete. Its sections stand in modules of their own,
and are all to be had from here.

Each field says what it means, in which unit, its default, what an absent value stands for and what a
change of it means; docs, JSON Schema and the planner read it from here and from nowhere else. A field
is None only where the value comes from the model or the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

from pydantic import Field

from halogend.config.devices import DeviceConfig, DeviceRef
from halogend.config.fields import IDENTITY, LIVE, Apply, FieldDoc, leaf_fields, setting, unindexed
from halogend.config.kinds import EngineVersion
from halogend.config.loading import KernelsConfig, LoadConfig, WarmupConfig
from halogend.config.model import ModelConfig
from halogend.config.policy import (
    EvictionConfig,
    LongPromptConfig,
    PoolConfig,
    SessionClassConfig,
    WatermarkConfig,
)
from halogend.config.replacing import ModelReloadConfig, ProbationConfig, ReloadConfig
from halogend.config.sampling import SamplingConfig
from halogend.config.section import Section
from halogend.config.server import ServerConfig

__all__ = [
    "API_VERSION",
    "DEFAULT_MODEL_NAME",
    "DeviceConfig",
    "DeviceRef",
    "Document",
    "EngineVersion",
    "EvictionConfig",
    "KernelsConfig",
    "LoadConfig",
    "LongPromptConfig",
    "ModelConfig",
    "ModelReloadConfig",
    "PoolConfig",
    "ProbationConfig",
    "ReloadConfig",
    "SamplingConfig",
    "ServerConfig",
    "SessionClassConfig",
    "WarmupConfig",
    "WatermarkConfig",
    "apply_class",
    "fields",
]

API_VERSION = "halogen.dev/v1alpha1"
DEFAULT_MODEL_NAME = "default"


class Document(Section):
    """The whole document in its full form."""

    api_version: Literal["halogen.dev/v1alpha1"] = setting(
        "Version of the document's rules.", IDENTITY, default=API_VERSION, alias="apiVersion"
    )
    server: ServerConfig = Field(default=ServerConfig(), description="The listeners.")
    devices: tuple[DeviceConfig, ...] = Field(
        default=(), description="What may be used of each device; devices not listed are discovered.", max_length=64
    )
    reload: ReloadConfig = Field(default=ReloadConfig(), description="How changes are carried out.")
    allow_empty: bool = setting("Whether a document without models is meant.", LIVE, default=False)
    models: tuple[ModelConfig, ...] = Field(default=(), description="The models to serve.", max_length=256)

    def model_named(self, name: str) -> ModelConfig | None:
        """The model whose own name (not alias) is `name`."""
        return next((model for model in self.models if model.name == name), None)


@cache
def _fields_by_path() -> dict[str, FieldDoc]:
    return {field.path: field for field in leaf_fields(Document)}


def fields() -> Iterator[FieldDoc]:
    """Every leaf field of the document, in the order of the canonical form."""
    return iter(_fields_by_path().values())


def apply_class(path: str) -> Apply:
    """The class of a change of `path` (`server.port`, `models[0].kernels.backend`); KeyError if no leaf."""
    return _fields_by_path()[unindexed(path)].apply
