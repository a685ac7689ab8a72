"""Every failure that the text process can give: codes, in one place, and who says them.

Request failures travel in Finished; api.errors has a row for each. Start failures travel in
StartFailed and Prepared, beside the checkpoint's own HCK codes.
"""

from __future__ import annotations

from halogend.wire.failure import Failure

PROMPT_TOO_LONG = "prompt_too_long"  # over max_prompt_len, or no room within max_model_len
MAX_TOKENS_TOO_LARGE = "max_tokens_too_large"  # over max_decode_len, or over what max_model_len leaves
EMPTY_PROMPT = "empty_prompt"  # no token at all
BAD_TOKEN = "bad_token"  # noqa: S105 - an id outside the vocabulary, no secret
NO_CHAT_TEMPLATE = "no_chat_template"  # chat asked of a model that has none
TEMPLATE_REJECTED = "template_rejected"  # the template itself refused the messages
TEMPLATE_FAILED = "template_failed"  # the template broke on these messages, or rendered too much
ENCODE_FAILED = "encode_failed"  # the tokenizer's library broke on this text
TEMPLATE_TIMEOUT = "template_timeout"  # the template ran past its time or memory limit
ENGINE_DIED = "engine_died"  # the engine's socket ended; said for every running request
INTERNAL = "internal_error"  # a fault of our own in this one request

REQUEST_CODES = (
    PROMPT_TOO_LONG,
    MAX_TOKENS_TOO_LARGE,
    EMPTY_PROMPT,
    BAD_TOKEN,
    NO_CHAT_TEMPLATE,
    TEMPLATE_REJECTED,
    TEMPLATE_FAILED,
    TEMPLATE_TIMEOUT,
    ENCODE_FAILED,
    ENGINE_DIED,
    INTERNAL,
)

TEMPLATE_INVALID = "HRT-1006"  # syntax error, or it broke on a plain message at load
TEMPLATE_LOOPS = "HRT-1005"  # it ran past its limits on a plain message at load
NO_RENDERER = "HRT-1010"  # the process that renders templates cannot be started


class RequestFailedError(Exception):
    """Ends one request; carries what its Finished event says."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(code=code, message=message, param=param)


class StartFailedError(Exception):
    """The process cannot serve what it was told to; `code` is an HRT code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code=code, message=message)
