"""JSON Schema of what a document may be, both forms, from the same classes that check it.

An editor that knows it completes and checks while typing; the rules between fields stay with
`halogend check`.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from halogend.config import schema, values
from halogend.config.access import OPEN
from halogend.config.shape import MOVED
from halogend.config.unavailable import LATER

_SWITCHED_OFF = ("ProbationConfig", "WatermarkConfig", "LongPromptConfig")
_INTERNAL = ("x-later", "x-path", "x-accepts", "x-section", "x-word")


def json_schema() -> dict[str, Any]:
    """Draft 2020-12. `x-apply`, `x-unit` and `x-unset` carry what the standard has no word for."""
    document = schema.Document.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = document.pop("$defs")
    document["required"] = ["apiVersion"]
    definitions["Document"] = document
    for model, keys in LATER.items():
        definitions[model.__name__]["properties"] |= {
            key: {"enum": list(neutral), "description": "Not available yet; takes the neutral value only."}
            for key, neutral in keys.items()
            if neutral
        }
    with_keys: dict[str, Any] = {**definitions["AuthConfig"], "required": ["keys"]}
    with_keys["properties"]["keys"].pop("default")
    definitions["AuthConfig"] = {"title": "AuthConfig", "anyOf": [{"const": OPEN}, with_keys]}
    for name in _SWITCHED_OFF:
        definitions[name] = {"title": name, "anyOf": [{"const": values.OFF}, definitions[name]]}
    model = definitions["ModelConfig"]["properties"]
    for key, home in MOVED.items():
        model[key] = definitions[_definition_of(home)]["properties"][key]
    definitions["ShortForm"] = _short_form(definitions)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "halogend document",
        "anyOf": [{"$ref": "#/$defs/Document"}, {"$ref": "#/$defs/ShortForm"}],
        "$defs": definitions,
    }
    cleaned: dict[str, Any] = _without_null(whole)
    return cleaned


def _definition_of(field: str) -> str:
    inner = schema.ModelConfig.model_fields[field].annotation
    return inner.__name__ if isinstance(inner, type) and issubclass(inner, BaseModel) else ""


def _short_form(definitions: dict[str, Any]) -> dict[str, Any]:
    model = definitions["ModelConfig"]["properties"]
    server = definitions["ServerConfig"]["properties"]
    own = {key: model[key] for key in model if key not in {"name", "reload"}}
    return {
        "title": "ShortForm",
        "description": f"One model, named {schema.DEFAULT_MODEL_NAME}, at the top level.",
        "type": "object",
        "properties": {**own, **server, "reload": {"$ref": "#/$defs/ReloadConfig"}},
        "required": ["model"],
        "additionalProperties": False,
    }


def _without_null(part: Any) -> Any:
    """No document may write null: absent is absent."""
    if isinstance(part, list):
        return [_without_null(each) for each in part]
    if not isinstance(part, dict):
        return part
    cleaned = {key: _without_null(value) for key, value in part.items() if key not in _INTERNAL}
    if "default" in cleaned and cleaned["default"] is None:
        del cleaned["default"]
    options = cleaned.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        del cleaned["anyOf"]
        cleaned = {**rest[0], **cleaned} if len(rest) == 1 else {**cleaned, "anyOf": rest}
    return cleaned
