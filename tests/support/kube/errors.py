"""What the API server says when it refuses: a `Status`, as Kubernetes' own apimachinery words it."""

from dataclasses import dataclass, field
from typing import Any

from support.kube.kinds import Kind


@dataclass(frozen=True)
class Cause:
    """One thing wrong with an object: where (a field path), what, and which of the API's words for it."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @property
    def text(self) -> str:
        return f"{self.field}: {self.message}"

    @property
    def body(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


@dataclass(eq=False)
class ApiError(Exception):
    """A refusal on its way to the caller. `body` is the `Status` that goes over the wire."""

    status: int
    reason: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    retry_after_s: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.status,
        }
        if self.reason:
            body["reason"] = self.reason
        details = dict(self.details)
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        return body | {"details": details} if details else body

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


def _details(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    details = {"name": name, "group": kind.group, "kind": kind.plural} | more
    return {key: value for key, value in details.items() if value}


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.dotted} "{name}" not found', _details(kind, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.dotted} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.dotted} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(kind, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def apply_conflict(causes: list[Cause]) -> ApiError:
    """Fields that another manager holds, in an apply without force."""
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    listed = ": " if len(causes) == 1 else ":\n"
    message = f"Apply failed with {count}{listed}" + "\n".join(
        f"{'- ' if len(causes) > 1 else ''}{cause.message}: {cause.field}" for cause in causes
    )
    return ApiError(409, "Conflict", message, {"causes": [cause.body for cause in causes]})


def invalid(kind: Kind, name: str, causes: list[Cause]) -> ApiError:
    """What validation found, all at once; the message lists it as Kubernetes' aggregate does."""
    texts = [cause.text for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    titled = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": [cause.body for cause in causes]}
    details = {key: value for key, value in details.items() if value}
    return ApiError(422, "Invalid", f'{titled} "{name}" is invalid: {listed}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def patch_failed() -> ApiError:
    """A JSON patch whose test, or whose path, did not hold."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request")


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unsupported_media(accepted: list[str]) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def of_status(status: int, message: str = "", retry_after_s: int | None = None) -> ApiError:
    """A refusal that a test asked for, in the words that go with its status."""
    reason = REASONS.get(status, "InternalError")
    return ApiError(status, reason, message or f"injected: {reason}", retry_after_s=retry_after_s)
