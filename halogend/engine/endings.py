"""The one end of a request, as it is told."""

from __future__ import annotations

from halogend.engine.execute import ENGINE_ERROR, NUMERIC_ERROR
from halogend.sched.request import End
from halogend.wire.failure import Failure
from halogend.wire.requests import Ended

_SENTENCES = {
    "queue_timeout": "the request waited longer than queue_timeout_ms for a place in the batch",
    "request_timeout": "the request took longer than request_timeout_ms",
    "kv_too_small": "the KV pool was made smaller than this request needs",
    NUMERIC_ERROR: "the model's output for this request is not finite",
    ENGINE_ERROR: "the engine failed on this request",
}


def ended(end: End) -> Ended:
    if end.code is None:
        return Ended(id=end.id, reason=end.reason)
    return failed(end.id, end.code, _SENTENCES.get(end.code, end.code))


def failed(request_id: int, code: str, message: str) -> Ended:
    return Ended(id=request_id, reason="error", failure=Failure(code=code, message=message))
