"""The one spelling of a document, and the revision taken from it.

Full form, the schema's order, every field with its value; a field that is left to the model or the
machine is left out. Parsing it again gives an equal document.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from halogend.config.access import OPEN, AuthConfig
from halogend.config.fields import extra_of, key_of
from halogend.config.nodes import resolve
from halogend.config.schema import DeviceRef, Document
from halogend.config.values import size_text

SHOWN_DIGITS = 12
_SIZES = frozenset({"memory", "reserve", "kv_cache_bytes"})
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./:+@-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def canonical(document: Document) -> str:
    """YAML, ending in a newline."""
    return written(_plain(document))


def written(values: Mapping[str, Any]) -> str:
    """YAML of plain values in the order given, spelt as the canonical form is: any reader takes each for what it is."""
    text: str = yaml.dump(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=float("inf"),
    )
    return text


def revision(document: Document) -> str:
    """sha256 of the canonical form, 64 hexadecimal digits."""
    return revision_of_text(canonical(document))


def revision_of_text(text: str) -> str:
    """As `revision`, of a text that is the canonical form: to write it once more is most of the work."""
    return hashlib.sha256(text.encode()).hexdigest()


def short_revision(revision: str) -> str:
    return revision[:SHOWN_DIGITS]


def _plain(model: BaseModel) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None:
            if info.default is not None and (word := extra_of(info).get("x-word")):
                values[key_of(name, info)] = word
            continue
        if isinstance(value, AuthConfig) and value.is_open:
            values[name] = OPEN
        elif isinstance(value, BaseModel):
            section = _plain(value)
            if section:
                values[key_of(name, info)] = section
        elif isinstance(value, tuple):
            values[key_of(name, info)] = [_entry(each) for each in value]
        elif name in _SIZES:
            values[name] = size_text(value)
        elif extra_of(info).get("x-path"):
            values[name] = value.replace("${", "$${")
        else:
            values[key_of(name, info)] = int(value) if isinstance(value, float) and value.is_integer() else value
    return values


def _entry(value: Any) -> Any:
    if isinstance(value, DeviceRef):
        return value.id if value.weight == 1 else _plain(value)
    return _plain(value) if isinstance(value, BaseModel) else value


class _Dumper(yaml.SafeDumper):
    """Quotes every text that any reader of YAML might take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and isinstance(resolve(value), str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)
