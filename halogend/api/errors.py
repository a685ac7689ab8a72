"""How a refusal or failure looks to a client: one row for each code, OpenAI's shape for all.

{"error": {"message": ..., "type": ..., "param": ..., "code": ...,
           "explain": "HAP-...."}}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from starlette.responses import Response

from halogend.config.codes import Code
from halogend.control.requests import RequestError
from halogend.wire.failure import Failure

log = structlog.get_logger(__name__)

_INVALID = "invalid_request_error"
_UNAVAILABLE = "service_unavailable_error"
_SERVER = "server_error"
_LIMITED = "rate_limit_error"
_MESSAGE_CHARS = 2000


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """`explain` is what `halogend explain` knows more about. `shown` is the `code` a client sees
    where OpenAI has a name of its own for the case.

    `retry`: whether the same request may well succeed a moment later. 5xx rows that say no carry
    `x-should-retry: false`, because client libraries repeat a 5xx by themselves.
    """

    status: int
    type: str
    explain: Code
    shown: str | None = None
    retry: bool = False
    retry_after_s: int | None = None


ERRORS: dict[str, ErrorRow] = {
    # the body
    "bad_json": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    "bad_encoding": ErrorRow(415, _INVALID, Code.BAD_REQUEST),
    "body_too_large": ErrorRow(413, _INVALID, Code.BODY_TOO_LARGE),
    "body_timeout": ErrorRow(408, _INVALID, Code.BAD_REQUEST, retry=True),
    "bad_http": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    # the fields
    "missing_field": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    "unknown_field": ErrorRow(400, _INVALID, Code.UNKNOWN_FIELD),
    "unsupported_field": ErrorRow(400, _INVALID, Code.NOT_SUPPORTED),
    "invalid_value": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    "unknown_class": ErrorRow(400, _INVALID, Code.CLASS_NOT_KNOWN),
    # who asks
    "missing_api_key": ErrorRow(401, _INVALID, Code.NO_VALID_KEY, shown="invalid_api_key"),
    "invalid_api_key": ErrorRow(401, _INVALID, Code.NO_VALID_KEY),
    "insufficient_scope": ErrorRow(403, _INVALID, Code.KEY_SCOPE),
    "class_not_allowed": ErrorRow(403, _INVALID, Code.CLASS_NOT_ALLOWED),
    "host_not_allowed": ErrorRow(421, _INVALID, Code.HOST_NOT_ALLOWED),
    "rate_limited": ErrorRow(429, _LIMITED, Code.KEY_QUOTA, retry=True, retry_after_s=1),
    "too_many_at_once": ErrorRow(429, _LIMITED, Code.KEY_QUOTA, retry=True, retry_after_s=1),
    # what is addressed
    "not_found": ErrorRow(404, _INVALID, Code.BAD_REQUEST),
    "method_not_allowed": ErrorRow(405, _INVALID, Code.BAD_REQUEST),
    "model_not_found": ErrorRow(404, _INVALID, Code.MODEL_NOT_FOUND),
    "receipt_not_found": ErrorRow(404, _INVALID, Code.BAD_REQUEST),
    "bad_content_type": ErrorRow(415, _INVALID, Code.BAD_REQUEST),
    "revision_mismatch": ErrorRow(409, _INVALID, Code.REVISION_MISMATCH),
    "stale_origin": ErrorRow(409, _INVALID, Code.STALE_ORIGIN),
    "document_not_kept": ErrorRow(404, _INVALID, Code.BAD_REQUEST),
    "nothing_to_roll_back": ErrorRow(409, _INVALID, Code.BAD_REQUEST),
    "nothing_drains": ErrorRow(409, _INVALID, Code.BAD_REQUEST),
    # the prompt against the model
    "empty_prompt": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    "bad_token": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    "prompt_too_long": ErrorRow(400, _INVALID, Code.PROMPT_TOO_LONG, shown="context_length_exceeded"),
    "max_tokens_too_large": ErrorRow(400, _INVALID, Code.PROMPT_TOO_LONG),
    "kv_too_small": ErrorRow(400, _INVALID, Code.PROMPT_TOO_LONG),
    "no_chat_template": ErrorRow(400, _INVALID, Code.TEMPLATE_MISSING),
    "template_rejected": ErrorRow(400, _INVALID, Code.BAD_REQUEST),
    # The template is the operator's, but it was this conversation that broke it or made it run over
    # its limit, and would do so again: 422, which no client library repeats by itself.
    "template_failed": ErrorRow(422, _INVALID, Code.TEMPLATE_INVALID),
    "template_timeout": ErrorRow(422, _INVALID, Code.TEMPLATE_DOES_NOT_FINISH),
    "encode_failed": ErrorRow(422, _INVALID, Code.BAD_REQUEST),  # so it is with a text that breaks the tokenizer
    # load and state; these pass
    "queue_full": ErrorRow(503, _UNAVAILABLE, Code.QUEUE_FULL, retry=True, retry_after_s=5),
    "queue_timeout": ErrorRow(503, _UNAVAILABLE, Code.QUEUE_TIMEOUT, retry=True, retry_after_s=5),
    "not_serving": ErrorRow(503, _UNAVAILABLE, Code.NOT_SERVING, retry=True, retry_after_s=5),
    "draining": ErrorRow(503, _UNAVAILABLE, Code.DRAIN_DEADLINE, retry=True, retry_after_s=5),
    "shutting_down": ErrorRow(503, _UNAVAILABLE, Code.NOT_SERVING, retry=True, retry_after_s=5),
    "engine_died": ErrorRow(503, _UNAVAILABLE, Code.ENGINE_LOST, retry=True, retry_after_s=2),
    # failures on our side
    "request_timeout": ErrorRow(504, _SERVER, Code.REQUEST_TIMEOUT),
    "engine_error": ErrorRow(500, _SERVER, Code.INTERNAL),
    "numeric_error": ErrorRow(500, _SERVER, Code.INTERNAL),
    "internal_error": ErrorRow(500, _SERVER, Code.INTERNAL),
}


_NOT_ITS_FAULT = frozenset({"draining", "not_serving", "shutting_down"})


def is_fault(code: str) -> bool:
    """Did whoever serves let a request down that ended so: a 5xx, but for those that say it is going away."""
    row = ERRORS.get(code)
    return row is not None and row.status >= 500 and code not in _NOT_ITS_FAULT


def row_of(error: RequestError) -> ErrorRow:
    """A code without a row is our own bug: it is logged and answered as an internal error."""
    row = ERRORS.get(error.code)
    if row is None:
        log.error("error_code_without_row", code=error.code)
        return ERRORS["internal_error"]
    return row


def body_of(error: RequestError) -> dict[str, Any]:
    """The JSON object that stands in a body or in a stream; `explain` names the code for
    `halogend explain`."""
    row = row_of(error)
    return {
        "error": {
            "message": _cut(error.message),
            "type": row.type,
            "param": error.param,
            "code": row.shown or error.code,
            "explain": row.explain,
        }
    }


def _cut(message: str) -> str:
    """What came from outside may be echoed, not handed back by the megabyte."""
    return message if len(message) <= _MESSAGE_CHARS else f"{message[:_MESSAGE_CHARS]} ..."


def headers_of(error: RequestError) -> dict[str, str]:
    row = row_of(error)
    headers: dict[str, str] = {}
    retry_after_s = error.retry_after_s if error.retry_after_s is not None else row.retry_after_s
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, retry_after_s))
    if row.status >= 500 and not row.retry:
        headers["x-should-retry"] = "false"
    return headers


def response_to(error: RequestError, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(body_of(error)),
        status_code=row_of(error).status,
        headers={**headers_of(error), **(headers or {})},
        media_type="application/json",
    )


def from_failure(failure: Failure) -> RequestError:
    return RequestError(failure.code, failure.message, param=failure.param)


def internal_error() -> RequestError:
    """What a client is told of our own bug; the log has the rest."""
    return RequestError("internal_error", "The server failed on this request; its log says why.")


def model_not_found(name: str, known: Iterable[str]) -> RequestError:
    listed = ", ".join(f"`{each}`" for each in known) or "none"
    return RequestError("model_not_found", f"There is no model `{name}` here. Known models: {listed}.", param="model")
