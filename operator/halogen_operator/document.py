"""The document that a spec stands for: what is pushed to pods, and what they start with.

Owns the `server` section of a pod and the way from a spec to the canonical text; must never know a manifest. The
same code reads it that a daemon has, so that what is wrong is known before anybody is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from halogen_operator.house import House
from halogen_operator.names import (
    ADMIN_FOLDER,
    ADMIN_KEY,
    ADMIN_PORT,
    HTTP_PORT,
    KEYS_FOLDER,
    METRICS_NAMES,
    OPERATOR_KEY_NAME,
    TLS_CERT,
    TLS_KEY,
)
from halogend.config.canonical import canonical, revision_of_text, written
from halogend.config.codes import Code
from halogend.config.custom_resource import DOCUMENT_KEYS, HalogenModelSpec, model_entry
from halogend.config.custom_resource_parts import ApiKeySpec
from halogend.config.nodes import unprintable
from halogend.config.parse import parse
from halogend.config.problems import Problem
from halogend.config.rules import check
from halogend.config.schema import API_VERSION, Document

_MODEL = re.compile(r"^models\[0\]\.?")
_KEY = re.compile(r"^server\.auth\.keys\[(\d+)\]")
_LINE = re.compile(r" \(line \d+\)")
_KEPT = 4096  # readings: of several edits of each of many HalogenModels


@dataclass(frozen=True, slots=True)
class Found:
    """A document's canonical text, its revision, and the text without defaults; with `problems` all are empty."""

    text: str = ""
    revision: str = ""
    written: str = ""
    problems: tuple[str, ...] = ()


def document_of(raw: Mapping[str, Any], spec: HalogenModelSpec, name: str, house: House) -> Found:
    """Of a spec, as it was written and as it was read; `name` is the HalogenModel's. Paths are taken as they are:
    `${NAME}` would be the operator's environment, and is refused."""
    entry = model_entry(raw, name)
    ordered = {key: entry[key] for key in (*DOCUMENT_KEYS, *entry) if key in entry}
    return _found(_key_of({"apiVersion": API_VERSION, "server": server_section(spec, house), "models": [ordered]}))


def bare(spec: HalogenModelSpec, house: House) -> str:
    """Without models: what a pod starts with before any document was accepted."""
    return _bare(_key_of(server_section(spec, house)))


def rehoused(text: str, spec: HalogenModelSpec, house: House) -> str:
    """An accepted document with the `server` section of this spec: the keys that the section names are mounted by the
    pod's template, and both must change at once, or a pod that starts can be asked by nobody. A text that this
    release cannot read gives a bare document: the pods are handed theirs anyway."""
    own = bare(spec, house)
    server, held = _read(own).server, _read_or_none(text)
    if held is None:
        return own
    return text if held.server == server else canonical(held.model_copy(update={"server": server}))


@lru_cache(_KEPT)
def respelt(text: str) -> str | None:
    """A daemon's document as this release writes it: an older one knows fewer fields, and fills in fewer. None for a
    text that this release cannot read."""
    held = _read_or_none(text)
    return None if held is None else canonical(held)


def server_section(spec: HalogenModelSpec, house: House) -> dict[str, Any]:
    """The listeners of a pod: inference for everybody who comes in, admin for the operator alone."""
    operator = {"name": OPERATOR_KEY_NAME, "file": f"{ADMIN_FOLDER}/{ADMIN_KEY}", "scopes": ["admin"]}
    keys = [_key(each) for each in spec.auth.keys or ()]
    auth: dict[str, Any] = {"keys": [operator, *keys]}
    if not keys:
        auth["infer"] = "none"
    return {
        "host": house.bind,
        "port": HTTP_PORT,
        "admin": f"[{house.bind}]:{ADMIN_PORT}" if ":" in house.bind else f"{house.bind}:{ADMIN_PORT}",
        "admin_tls": {"cert": f"{ADMIN_FOLDER}/{TLS_CERT}", "key": f"{ADMIN_FOLDER}/{TLS_KEY}"},
        "auth": auth,
        "metrics_compat": METRICS_NAMES,
    }


def key_file(secret: str, key: str) -> str:
    """Where an entry of a Secret lies in a pod, below the folder of keys."""
    return f"{secret}/{key}"


def _key(each: ApiKeySpec) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": each.name,
        "file": f"{KEYS_FOLDER}/{key_file(each.secret.name, each.secret.key)}",
        "scopes": ["infer"],
        "rpm": each.rpm,
        "max_concurrent": each.max_concurrent,
        "weight": each.weight,
        "classes": list(each.classes) or None,
    }
    return {name: value for name, value in plain.items() if value is not None}


# --- reading, once each: a HalogenModel is looked at again and again, and seldom another ------------


def _key_of(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain)


@lru_cache(_KEPT)
def _found(key: str) -> Found:
    plain = json.loads(key)
    text = written(plain)
    parsed = parse(text.encode(), "spec", {})
    problems = check(parsed)
    if problems or parsed.document is None:
        return Found(problems=tuple(dict.fromkeys(_told(_for_specs(problem, plain)) for problem in problems)))
    full = canonical(parsed.document)
    return Found(full, revision_of_text(full), text)


@lru_cache(_KEPT)
def _bare(key: str) -> str:
    return written({"apiVersion": API_VERSION, "server": json.loads(key), "allow_empty": True, "models": []})


@lru_cache(_KEPT)
def _read_or_none(text: str) -> Document | None:
    return parse(text.encode(), "document", {}).document


def _read(text: str) -> Document:
    document = _read_or_none(text)
    if document is None:
        raise ValueError("the operator's own document is not right")
    return document


def _for_specs(problem: Problem, plain: Mapping[str, Any]) -> Problem:
    """What the reader of a file says otherwise to the writer of a spec: a text that no document may hold is refused
    before any field is known, and a pod's environment is nobody's."""
    if problem.code == Code.CONTROL_CHARACTER:
        return replace(problem, path=next(_unprintable(plain, ""), ""))
    if problem.code == Code.UNSET_VARIABLE:
        return replace(problem, message="${...} is not filled in here", hint="write it out; $${ stands for a plain ${")
    return problem


def _unprintable(value: Any, path: str) -> Iterator[str]:
    """Where such characters are; one in a key is told by what the key is in."""
    if isinstance(value, str) and unprintable(value):
        yield path
    elif isinstance(value, dict):
        if any(unprintable(key) for key in value):
            yield path
        for key, inner in value.items():
            yield from _unprintable(inner, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unprintable(inner, f"{path}[{index}]")


def _told(problem: Problem) -> str:
    """Begins with the place in the spec. The first key is the operator's own; lines of a text that nobody has seen say
    nothing."""
    path = problem.path
    if key := _KEY.match(path):
        inner = path[key.end() :].replace(".file", ".secretKeyRef")
        place = f"spec.auth.keys[{int(key[1]) - 1}]{inner}"
    elif _MODEL.match(path):
        place = f"spec.{_MODEL.sub('', path)}".removesuffix(".")
    else:
        place = "spec"
    text = f"{place}: {problem.code}: {_LINE.sub('', problem.message)}"
    return f"{text} ({problem.hint})" if problem.hint else text
