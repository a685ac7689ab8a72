"""Documents for tests: reading text, and values for every field taken from the schema itself."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from halogend.config import accepts, schema
from halogend.config.access import AuthConfig, KeyConfig, TlsConfig
from halogend.config.fields import FieldDoc
from halogend.config.parse import parse
from halogend.config.places import ParseResult

ENV = {"MODELS": "/srv/models", "EMPTY": ""}
HEAD = "apiVersion: halogen.dev/v1alpha1\n"
MODEL = "models:\n  - name: chat\n    model: /m/a.gguf\n"

_OWNERS = {
    "": schema.Document,
    "server": schema.ServerConfig,
    "server.tls": TlsConfig,
    "server.admin_tls": TlsConfig,
    "server.auth": AuthConfig,
    "server.auth.keys[]": KeyConfig,
    "devices[]": schema.DeviceConfig,
    "reload": schema.ReloadConfig,
    "models[]": schema.ModelConfig,
    "models[].kernels": schema.KernelsConfig,
    "models[].load": schema.LoadConfig,
    "models[].sampling": schema.SamplingConfig,
    "models[].warmup": schema.WarmupConfig,
    "models[].probation": schema.ProbationConfig,
    "models[].reload": schema.ModelReloadConfig,
    "models[].kv_block_pool": schema.PoolConfig,
    "models[].watermarks": schema.WatermarkConfig,
    "models[].eviction": schema.EvictionConfig,
    "models[].eviction.sessions[]": schema.SessionClassConfig,
    "models[].long_prompt": schema.LongPromptConfig,
}
_INSIDE = (  # drawn with their sections
    *("server.auth.", "server.tls.", "server.admin_tls."),
    *("models[].probation.", "models[].watermarks.", "models[].long_prompt.", "models[].eviction.sessions[]."),
)
_CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")
"""What a document may hold: YAML knows neither of the last two."""
_TEXT = st.text(_CHARACTERS, max_size=20)
_PATHS = _TEXT.map(lambda text: f"/{text}")
_NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,12}\Z")
_DEVICES = st.sampled_from(["cpu", "cpu:0", "cuda:1", "ai_max_395", "rocm:12"])
_ENTRIES = st.fixed_dictionaries({"id": _DEVICES}, optional={"weight": st.floats(0.5, 9)})
_FILES = _PATHS.map(lambda path: path.replace("${", "$${"))
_KEYS = st.lists(st.fixed_dictionaries({"name": _NAMES, "file": _FILES}), min_size=1, max_size=2)
_SIZES = st.sampled_from([1, 4096, "1KiB", "1.5GiB", "3 MiB", "2TiB"])
_SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "apiVersion": st.just(schema.API_VERSION),
    "server.host": st.sampled_from(["127.0.0.1", "::1", "192.0.2.1", "localhost", "a-b.example"]),
    "server.admin": st.sampled_from(
        ["unix:/run/a.sock", "unix:/tmp/b c.sock", "unix:/é", "127.0.0.1:1", "[::1]:65535"]
    ),
    "server.auth": st.just("none")
    | st.fixed_dictionaries({"keys": _KEYS}, optional={"overlap_s": st.floats(0, 9), "infer": st.just("none")}),
    "server.auth.keys[].name": _NAMES,
    "server.auth.keys[].scopes": st.lists(st.sampled_from(["infer", "admin"]), min_size=1, max_size=2),
    **{f"server.{section}": st.fixed_dictionaries({"cert": _FILES, "key": _FILES}) for section in ("tls", "admin_tls")},
    **{f"server.{path}": _FILES for path in ("tls.cert", "tls.key", "admin_tls.cert", "admin_tls.key")},
    "server.auth.keys[].file": _FILES,
    "server.auth.keys[].classes": st.lists(_NAMES, max_size=2),
    "devices[].id": _DEVICES,
    "devices[].cores": st.sampled_from(["0", "0-3", "1,3", "2-5,7"]),
    "devices[].memory": _SIZES,
    "devices[].reserve": _SIZES,
    "models[].name": _NAMES,
    "models[].aliases": st.lists(_NAMES, max_size=3),
    "models[].model": _PATHS.map(lambda path: path.replace("${", "$${")),
    "models[].kernels.cache_dir": _PATHS.map(lambda path: path.replace("${", "$${")),
    "models[].chat_template": _PATHS.map(lambda path: path.replace("${", "$${")) | st.just("chatml"),
    "models[].device": _DEVICES | _ENTRIES | st.lists(_DEVICES | _ENTRIES, min_size=1, max_size=3) | st.just("auto"),
    "models[].kv_cache_bytes": _SIZES,
    "models[].probation": st.just("off")
    | st.fixed_dictionaries({"s": st.floats(1, 9)}, optional={"min_requests": st.integers(1, 9)}),
    "models[].watermarks": st.just("off")
    | st.fixed_dictionaries({}, optional={"soft": st.floats(0.1, 1), "hard": st.floats(0.1, 1)}),
    "models[].long_prompt": st.just("off") | st.fixed_dictionaries({}, optional={"threshold": st.integers(1, 9)}),
    "models[].eviction.sessions[].class": _NAMES,
    "models[].warmup.prompt": st.text(_CHARACTERS | st.just("\n")),
}


def read(text: str | bytes, env: dict[str, str] | None = None) -> ParseResult:
    data = text.encode() if isinstance(text, str) else text
    return parse(data, "", ENV if env is None else env)


def json_schema_of(field: FieldDoc) -> dict[str, Any]:
    """The JSON Schema of one leaf."""
    section, _, key = field.path.rpartition(".")
    return accepts.schema_of(_OWNERS[section], key)


def values_of(field: FieldDoc) -> st.SearchStrategy[Any]:
    """Values a document may write for the field, each as YAML would hold it."""
    special = _SPECIAL.get(field.path)
    return _from_schema(json_schema_of(field)) if special is None else special


def _from_schema(fragment: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in fragment:
        return st.one_of([_from_schema(part) for part in fragment["anyOf"] if part != {"type": "null"}])
    if literals := accepts.choices(fragment):
        return st.sampled_from(literals)
    if fragment["type"] == "boolean":
        return st.booleans()
    if fragment["type"] == "integer":
        return st.integers(fragment["minimum"], fragment["maximum"])
    if fragment["type"] == "number":
        low = fragment.get("minimum", fragment.get("exclusiveMinimum"))
        floats = st.floats(low, fragment["maximum"], exclude_min="exclusiveMinimum" in fragment)
        least, most = int(low) + 1, int(fragment["maximum"])
        return floats | st.integers(least, most) if least <= most else floats
    raise AssertionError(f"no values known for {fragment}")


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document in the full form as plain values; it parses, and may contradict itself."""
    whole: dict[str, Any] = {}
    models = [{} for _ in range(draw(st.integers(0, 3)))]
    devices = [{} for _ in range(draw(st.integers(0, 2)))]
    for field in schema.fields():
        if field.path.startswith(_INSIDE):
            continue
        for root in {"models[]": models, "devices[]": devices}.get(field.path.split(".")[0], [whole]):
            if field.required or field.path == "apiVersion" or draw(st.booleans()):
                steps = field.path.split(".")
                steps = steps[1:] if steps[0].endswith("[]") else steps
                section = root
                for step in steps[:-1]:
                    section = section.setdefault(step, {})
                section[steps[-1]] = draw(values_of(field))
    return {**whole, "models": models, "devices": devices}
