"""The part of docs/config.md about HalogenModels: what their spec has beside a document's model, and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from halogend.config.custom_resource import KUBERNETES_KEYS, LEFT_OUT, HalogenModelSpec
from halogend.config.structural import structural

_INTRO = """
## In Kubernetes

The spec of a `HalogenModel` holds the fields of one entry of `models[]` by the same names and with the same meaning,
defaults and classes, and beside them Kubernetes' own, in camelCase. `kubectl explain hm.spec` tells all of them;
`halogend crd` prints the definition, and `examples/kubernetes/` has whole ones. Kubernetes' schemas know no field that
takes a word or a mapping, and YAML there reads a bare `off` as `false`, so some are spelt otherwise:

| field | in a HalogenModel |
|---|---|
| `name` | may be left out: the name of the HalogenModel |
| `device` | a list of texts, `[cuda:0]`, numbered from 0 within a pod; no weights, and no `cpu` but one |
| `watermarks`, `long_prompt` | a mapping; `enabled: false` is the document's `off` |
| `probation` | a mapping; left out, it is off |
| `reload.drain_timeout_s` | `auto` or whole seconds |
| `kernels.flash_attention` | there only, not at the top |
{left_out}

The listeners, the devices' shares and `allow_empty` are the operator's business and have no field. A field that the
definition does not have is dropped by the API server: `kubectl` tells it as an error, other clients as a warning.

| field | default | meaning |
|---|---|---|"""


def kubernetes_lines() -> Iterator[str]:
    """Markdown, a table row a line."""
    left_out = "\n".join(f"| `{key}` | not there: {why} |" for key, why in LEFT_OUT.items())
    yield _INTRO.format(left_out=left_out)
    spec = structural(HalogenModelSpec, filled_in=frozenset(KUBERNETES_KEYS))
    for key in KUBERNETES_KEYS:
        yield from _rows(key, spec["properties"][key], is_required=key in spec["required"])


def _rows(path: str, schema: dict[str, Any], *, is_required: bool) -> Iterator[str]:
    default = schema.get("default")
    shown = "required" if is_required else "" if default in (None, {}) else f"`{_text(default)}`"
    yield f"| `{path}` | {shown} | {schema['description']} |"
    inner = schema.get("items", schema)
    around = f"{path}[]" if "items" in schema else path
    for key, each in inner.get("properties", {}).items():
        yield from _rows(f"{around}.{key}", each, is_required=key in inner.get("required", ()))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
