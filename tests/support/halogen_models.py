"""HalogenModels as an API server gives them, and what else the operator's pure functions take."""

from collections.abc import Mapping
from typing import Any

from halogen_operator.house import House
from halogen_operator.wanted import Refusal, Wanted, read

HOUSE = House(
    image="registry.example/halogend:1.0",
    namespace="halogen-system",
    labels={"app.kubernetes.io/name": "halogen-operator"},
    version="1.0",
)
SECRET = {name: name.encode() for name in ("admin.key", "ca.crt", "ca.key", "tls.crt", "tls.key")}


def halogen_model(
    name: str = "chat", /, *, generation: int = 1, plan_only: bool = False, **spec: Any
) -> dict[str, Any]:
    """With the API server's defaults left out; `spec` has an open access and a model unless told."""
    annotations = {"annotations": {"halogen.dev/plan-only": "true"}} if plan_only else {}
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "generation": generation, **annotations}
    whole = {"model": "/models/tiny.gguf", "auth": {"none": True}, **spec}
    kind = {"apiVersion": "halogen.dev/v1alpha1", "kind": "HalogenModel"}
    return {**kind, "metadata": metadata, "spec": whole}


def wanted(name: str = "chat", /, house: House = HOUSE, **spec: Any) -> Wanted:
    """Of a spec that must be sound."""
    found = read(halogen_model(name, **spec), house)
    assert isinstance(found, Wanted), found
    return found


def refused(name: str = "chat", /, **spec: Any) -> tuple[str, ...]:
    """The problems of a spec that must not be."""
    found = read(halogen_model(name, **spec), HOUSE)
    assert isinstance(found, Refusal), found
    return found.problems


def of_kind(manifests: tuple[Mapping[str, Any], ...], kind: str) -> Any:
    """The one manifest of this kind, or None."""
    found = [each for each in manifests if each["kind"] == kind]
    assert len(found) <= 1
    return found[0] if found else None
