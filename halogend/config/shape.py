"""The tree of a document -> plain values by field, in the full form, with the place of each.

Knows which keys stand where and both spellings of a document; the values are judged by the schema.
Every fault is gathered, none ends the walk.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from halogend.config import schema
from halogend.config.access import AuthConfig, KeyConfig, TlsConfig
from halogend.config.codes import Code
from halogend.config.fields import extra_of, key_of, nested
from halogend.config.findings import Findings, Slot, kind
from halogend.config.leaves import leaf
from halogend.config.nodes import Entry, Mapping, Node, Scalar, Sequence, plain_value
from halogend.config.unavailable import LATER, OUT_OF_SCOPE, is_neutral, misfit, neutral_words
from halogend.config.values import shown

FULL_ONLY = ("apiVersion", "server", "devices", "models", "allow_empty")
MOVED = {"flash_attention": "kernels"}


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(key_of(name, info) for name, info in model.model_fields.items())


SERVER_KEYS = keys_of(schema.ServerConfig)
MODEL_KEYS = keys_of(schema.ModelConfig)


def shape(root: Node, into: Findings) -> dict[str, Any]:
    """The document as plain values in the full form. Fields at fault are left out and reported."""
    into.marks[""] = root.mark
    if not isinstance(root, Mapping):
        into.report(
            Code.WRONG_TYPE,
            root.mark,
            "",
            f"a document is a mapping of keys to values, found {kind(root)}",
            f"start with model: PATH, or apiVersion: {schema.API_VERSION}",
        )
        return {}
    full = [entry for entry in root.entries if entry.key in FULL_ONLY]
    short = [entry for entry in root.entries if entry.key in (*MODEL_KEYS, *MOVED) and entry.key != "reload"]
    if not (full and short):
        return _short_form(root, into) if short else _full_form(root, into)
    into.report(
        Code.MIXED_FORMS,
        short[0].mark,
        short[0].key,
        f"`{short[0].key}` belongs to the short form (one model at the top level), "
        f"`{full[0].key}` ({full[0].mark.words}) to the full form",
        "move the model's fields into an entry of `models:`, or remove the keys of the full form",
    )
    return {}


def _full_form(root: Mapping, into: Findings) -> dict[str, Any]:
    version = root.get("apiVersion")
    if version is None:
        hint = f"write apiVersion: {schema.API_VERSION} for the full form, or model: PATH for the short one"
        into.report(Code.API_VERSION, root.mark, "apiVersion", "`apiVersion` is missing", hint)
    elif not isinstance(version.node, Scalar) or version.node.value != schema.API_VERSION:
        message = f"`apiVersion` must be {schema.API_VERSION}, found {kind(version.node)}"
        into.report(Code.API_VERSION, version.node.mark, "apiVersion", message, f"write {schema.API_VERSION}")
    others = tuple(entry for entry in root.entries if entry is not version)
    return _section(_part(root, others), schema.Document, "", into)


def _short_form(root: Mapping, into: Findings) -> dict[str, Any]:
    """Top-level keys are dealt out to the server, the reload section and the one model."""
    server = tuple(entry for entry in root.entries if entry.key in SERVER_KEYS)
    reload = tuple(entry for entry in root.entries if entry.key == "reload")
    own = tuple(entry for entry in root.entries if entry.key not in {*SERVER_KEYS, "reload", "name"})
    if name := root.get("name"):
        message = f"`name` has no place in the short form, whose model is named {schema.DEFAULT_MODEL_NAME}"
        hint = "write the full form to name the model; `halogend check --print` shows a document in it"
        into.report(Code.UNKNOWN_KEY, name.mark, "models[0].name", message, hint)
    into.marks["models"] = into.marks["models[0]"] = root.mark
    model = _section(_part(root, own), schema.ModelConfig, "models[0]", into, (*SERVER_KEYS, "reload"))
    return {
        "server": _section(_part(root, server), schema.ServerConfig, "server", into),
        **_section(_part(root, reload), schema.Document, "", into),
        "models": ({"path_alias": True, **model, "name": schema.DEFAULT_MODEL_NAME},),
    }


def _part(root: Mapping, entries: tuple[Entry, ...]) -> Mapping:
    return Mapping(entries, root.mark, root.block, root.size, root.depth)


def _section(node: Node, model: type[BaseModel], path: str, into: Findings, also: Iterable[str] = ()) -> dict[str, Any]:
    """A mapping that a model class describes. `also` are known keys beside its own, for suggestions."""
    if not isinstance(node, Mapping):
        name = path.rpartition(".")[2]
        message = f"`{name}` must be a mapping of keys to values, found {kind(node)}"
        into.report(Code.WRONG_TYPE, into.marks[path], path, message)
        return {}
    keys = keys_of(model)
    values: dict[str, Any] = {}
    for entry in node.entries:
        where = f"{path}.{entry.key}" if path else entry.key
        if entry.key in keys:
            _field(entry, Slot(model, entry.key, where), values, into)
        elif model is schema.ModelConfig and entry.key in MOVED:
            _moved(entry, node, path, values, into)
        else:
            _foreign(entry, model, where, (*keys, *also), into)
    return values


def _field(entry: Entry, slot: Slot, values: dict[str, Any], into: Findings) -> None:
    into.saw(entry, slot.path)
    into.slots[slot.path] = slot
    if isinstance(entry.node, Scalar) and entry.node.value is None:
        message, hint = f"`{slot.name}` has no value", "give it one, or remove the line to get the default"
        into.report(Code.NO_VALUE, entry.mark, slot.path, message, hint)
        return
    inner, is_list = nested(slot.info)
    if inner is None or (isinstance(entry.node, Scalar) and "x-word" in extra_of(slot.info)):
        values.update((entry.key, value) for value in leaf(entry, slot, into))
    elif is_list:
        values[entry.key] = _list_of(entry, inner, slot.path, into)
    else:
        values[entry.key] = {**values.get(entry.key, {}), **_section(entry.node, inner, slot.path, into)}


def _list_of(entry: Entry, model: type[BaseModel], path: str, into: Findings) -> tuple[dict[str, Any], ...]:
    if not isinstance(entry.node, Sequence):
        message = f"`{entry.key}` must be a list, found {kind(entry.node)}"
        into.report(Code.WRONG_TYPE, into.marks[path], path, message, "start each entry with a dash")
        return ()
    items = []
    for index, item in enumerate(entry.node.items):
        into.marks[f"{path}[{index}]"] = item.mark
        items.append(_section(item, model, f"{path}[{index}]", into))
    return tuple(items)


def _moved(entry: Entry, node: Mapping, path: str, values: dict[str, Any], into: Findings) -> None:
    """`flash_attention` at a model's top level is `kernels.flash_attention`."""
    home = MOVED[entry.key]
    where = f"{path}.{home}.{entry.key}"
    there = node.get(home)
    twin = there.node.get(entry.key) if there and isinstance(there.node, Mapping) else None
    if twin is not None:
        message = f"`{entry.key}` stands here and in `{home}` ({twin.mark.words})"
        into.report(Code.TWO_SPELLINGS, entry.mark, where, message, "keep one of them")
        return
    inner: dict[str, Any] = {}
    _field(entry, Slot(schema.KernelsConfig, entry.key, where), inner, into)
    values[home] = {**values.get(home, {}), **inner}


def _foreign(entry: Entry, model: type[BaseModel], path: str, known: tuple[str, ...], into: Findings) -> None:
    """A key that is no field here: not available yet, out of scope, misplaced or misspelt."""
    later = LATER.get(model, {})
    if entry.key in later:
        _later(entry, path, later[entry.key], into)
    elif entry.key in OUT_OF_SCOPE:
        what, advice = OUT_OF_SCOPE[entry.key]
        into.report(
            Code.OUT_OF_SCOPE, entry.mark, path, f"`{entry.key}` asks for {what}, which halogend does not do", advice
        )
    else:
        is_secret = model is KeyConfig and entry.key in _SECRETS
        hint = _NO_SECRETS if is_secret else _home_of(entry.key, model) or _nearest(entry.key, known, later)
        into.report(Code.UNKNOWN_KEY, entry.mark, path, f"unknown key {shown(entry.key)}", hint)


def _later(entry: Entry, path: str, neutral: tuple[Any, ...], into: Findings) -> None:
    value = plain_value(entry.node)
    if is_neutral(value, neutral):
        return
    code, fault = misfit(entry.key, value) or (Code.NOT_AVAILABLE_YET, "is not available yet")
    into.report(code, entry.mark, path, f"`{entry.key}` {fault}", neutral_words(neutral))


_SECRETS = frozenset({"key", "value", "secret", "token", "api_key", "env"})
_NO_SECRETS = "a key never stands in the document: write it into a file of its own, and name that in `file`"
_HOMES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("under server", schema.ServerConfig),
    ("under reload", schema.ReloadConfig),
    ("in an entry of models", schema.ModelConfig),
    ("in an entry of devices", schema.DeviceConfig),
    ("under kernels of a model", schema.KernelsConfig),
    ("under load of a model", schema.LoadConfig),
    ("under sampling of a model", schema.SamplingConfig),
    ("under warmup of a model", schema.WarmupConfig),
    ("under kv_block_pool of a model", schema.PoolConfig),
    ("under watermarks of a model", schema.WatermarkConfig),
    ("under long_prompt of a model", schema.LongPromptConfig),
    ("under eviction of a model", schema.EvictionConfig),
    ("in an entry of sessions under eviction", schema.SessionClassConfig),
    ("at the top level", schema.Document),
    ("under server.auth", AuthConfig),
    ("in an entry of keys under server.auth", KeyConfig),
    ("under server.tls", TlsConfig),
)


def _home_of(key: str, here: type[BaseModel]) -> str:
    """Where a key belongs that is known at another place; empty if it is known nowhere."""
    home = next((home for home, model in _HOMES if model is not here and key in keys_of(model)), "")
    return f"`{key}` belongs {home}" if home else ""


def _nearest(key: str, known: tuple[str, ...], later: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1) or difflib.get_close_matches(key, tuple(later), n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known here: {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
