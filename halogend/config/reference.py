"""docs/config.md and docs/errors.md, written from the schema and the table of codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from halogend.config import accepts, schema
from halogend.config.canonical import canonical
from halogend.config.codes import Code
from halogend.config.fields import extra_of, key_of, nested
from halogend.config.parse import parse
from halogend.config.profiles import PROFILES, leaves
from halogend.config.reference_kubernetes import kubernetes_lines
from halogend.config.unavailable import LATER, OUT_OF_SCOPE, neutral_words

_EXAMPLE = """\
model: /models/smollm2-135m-instruct.gguf
device: cpu:0
kv_cache_ratio: 0.5
port: 8000
"""

_INTRO = """\
# The document

<!-- Written by `halogend schema --markdown`; a test fails when this page and the schema differ. -->

One YAML or JSON file says what the daemon serves. It has two spellings and one canonical form.

The **short form** is one model at the top level:

```yaml
{short}```

Its model is named `default`; the last part of the path, without .gguf, is accepted as a name too. Keys of
`server` (`host`, `port`, `tls`, `admin`, `auth`, ...) and `reload` stand beside the model's own.

The **full form** starts with `apiVersion: halogen.dev/v1alpha1`. `halogend check --print FILE` shows any valid
document in it, every field with its value; fields that are left to the model or the machine are left out. The
example above in full:

```yaml
{full}```

The **revision** is the sha256 of that canonical form, shown as its first 12 digits: key order, comments and
spelling do not change it.

## Rules of reading

* Unknown keys, duplicate keys and wrong types are errors with line and column; all of them are told at once.
* `false`, `0` and absent are three things. A key without a value (or `null`) is an error.
* Booleans are `true` and `false`, nothing else. Numbers are plain decimal. `"8000"` is text.
* `${{NAME}}` is replaced by an environment variable in path fields only (`model`, `chat_template`, files of
  keys and certificates); one that is not set is an error. `$${{` stands for a plain `${{`.
* Sizes are plain bytes or end in KiB, MiB, GiB or TiB.
* A directory is one document too: its `*.yaml` and `*.yml` are merged in name order, and the same key in two of
  them is an error with both places (docs/operations.md).
* Anchors and aliases are accepted; tags, merge keys and several documents in one file are not.

## What a change of a field means

| class | meaning |
|---|---|
| live | in place, under a second, no token lost |
| generation | a new generation of the model is loaded and takes over |
| listener | a socket is bound anew |
| next-load | recorded and used at the next load |
| identity | another thing: one is removed, another created |
"""

_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Top level", schema.Document),
    ("server", schema.ServerConfig),
    ("devices[]", schema.DeviceConfig),
    ("reload", schema.ReloadConfig),
    ("models[]", schema.ModelConfig),
)

_SHOWN_UNITS = frozenset({"s", "ms", "tokens"})
_KV_NOTE = """
`kv_cache_ratio` is a share of what the device has left for KV memory. Elsewhere the same name is used for a share
of all memory, the rest being for weights: a value carried over from there may mean less here. When a pool is full,
running requests are preempted and computed again later; none is ended for another.
"""


def config_markdown() -> str:
    return "\n".join(_config_lines()) + "\n"


def errors_markdown() -> str:
    return "\n".join(_error_lines()) + "\n"


def _config_lines() -> Iterator[str]:
    document = parse(_EXAMPLE.encode(), "example.yaml", {}).document
    yield _INTRO.format(short=_EXAMPLE, full=canonical(document) if document else "")
    yield "## Fields"
    for title, model in _SECTIONS:
        yield f"\n### {title}\n\n{model.__doc__}\n"
        yield "| field | takes | default | change | meaning |\n|---|---|---|---|---|"
        yield from _rows(model, "")
        if model is schema.ModelConfig:
            yield _KV_NOTE.rstrip("\n")
    yield from kubernetes_lines()
    yield from _profile_lines()
    yield from _unavailable_lines()


def _profile_lines() -> Iterator[str]:
    yield "\n## Engine versions\n"
    yield "What `engine_version` sets where the model does not say; the rest is as above.\n"
    yield "| version | field | value |\n|---|---|---|"
    for version in PROFILES:
        for path, value in leaves(version):
            note = ", of a model that is alone and has no `kv_cache_bytes`" if path == "kv_cache_ratio" else ""
            yield f"| {version} | `{path}` | {_default(value, {})}{note} |"


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        key = key_of(name, info)
        inner, is_list = nested(info)
        extra = extra_of(info)
        if "x-section" in extra and inner is not None:
            takes = f"`{extra['x-word']}`, or a mapping" if "x-word" in extra else "a mapping"
            yield f"| `{prefix}{key}` | {takes} | {extra['x-unset']} | {extra['x-apply']} | {info.description} |"
            yield from _rows(inner, f"{prefix}{key}.")
        elif inner is None:
            takes = accepts.words(accepts.schema_of(model, key)) if key != "apiVersion" else schema.API_VERSION
            default = "required" if info.is_required() or key == "apiVersion" else _default(info.default, extra)
            default = "the document's" if prefix == "reload." else default
            takes = f"{takes}, in {extra['x-unit']}" if extra.get("x-unit") in _SHOWN_UNITS else takes
            yield f"| `{prefix}{key}` | {takes} | {default} | {extra['x-apply']} | {info.description} |"
        elif model is schema.Document:
            yield f"| `{key}` | {'a list, see below' if is_list else 'see below'} | | | {info.description} |"
        else:
            yield from _rows(inner, f"{prefix}{key}{'[]' if is_list else ''}.")


def _default(value: Any, extra: dict[str, Any]) -> str:
    if value is None:
        return str(extra.get("x-unset", "none"))
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{', '.join(str(getattr(each, 'id', each)) for each in value)}`" if value else "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`" if value != "" else "empty"


def _unavailable_lines() -> Iterator[str]:
    names: dict[type[BaseModel], str] = {
        schema.ServerConfig: "server",
        schema.DeviceConfig: "devices[]",
        schema.KernelsConfig: "models[].kernels",
    }
    yield "\n## Not available yet\n"
    yield "Known to the language and refused with HCF-1017, unless they say what happens anyway.\n"
    yield "| field | what is accepted |\n|---|---|"
    for model, keys in LATER.items():
        for key, neutral in keys.items():
            yield f"| `{names.get(model, 'models[]')}.{key}` | {neutral_words(neutral)} |"
    for field in schema.fields():
        if field.later:
            later = ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in field.later)
            yield f"| `{field.path}` | anything but {later} |"
    yield "\n## Out of scope\n"
    by_topic: dict[tuple[str, str], list[str]] = {}
    for key, topic in OUT_OF_SCOPE.items():
        by_topic.setdefault(topic, []).append(f"`{key}`")
    yield from (f"* {what} ({', '.join(keys)}): {advice}." for (what, advice), keys in by_topic.items())


_FAMILIES = {
    "HCF": "The document",
    "HCK": "Checkpoints",
    "HRT": "The running daemon",
    "HAP": "Requests",
}


def _error_lines() -> Iterator[str]:
    yield "# Error codes\n"
    yield "<!-- Written by `halogend explain --markdown`; a test fails when this page and the table differ. -->\n"
    yield "`halogend explain CODE` shows one entry on the command line."
    for family, title in _FAMILIES.items():
        yield f"\n## {family}: {title}"
        for code in Code:
            if code.value.startswith(family):
                yield f"\n### {code.value}: {code.heading}\n\n{code.cause}\n\n**What to do:** {code.remedy}"
