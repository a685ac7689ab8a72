"""HAP-1xxx: requests."""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
ROWS: Mapping[str, tuple[str, str, str]] = {
    "HAP-1001": ("the model is not known",
        "`model` of the request is neither a name nor an alias of a model that is served.",
        "Take one of the names in the message, or from GET /v1/models."),
    "HAP-1002": ("the request is not valid",
        "The body is no JSON, or a field has the wrong type or a value out of range.",
        "Mend the field the error's `param` names."),
    "HAP-1003": ("a field of the request is not known",
        "The route has no field of this name; dropping it without a word would change what the caller asked for.",
        "Remove the field or mend its name."),
    "HAP-1004": ("the body is too large",
        "The request's body is over 10 MiB.",
        "Send less; no model takes a prompt of that length."),
    "HAP-1005": ("the prompt is too long",
        ("Prompt, or prompt and answer together, are over a limit of the model. Nothing is ever cut off in "
         "silence."),
        "Shorten the prompt or `max_tokens` by what the message says, or raise the limit it names."),
    "HAP-1006": ("the queue is full",
        "`max_queue` requests wait already, or `max_queue_tokens` tokens of prompts.",
        ("Try again after the seconds in Retry-After; raise `max_queue`, `max_queue_tokens` or `max_batch`, or add "
         "capacity.")),
    "HAP-1007": ("the request waited too long",
        "No room came free within `queue_timeout_ms`.",
        "Try again after the seconds in Retry-After; add capacity if it is common."),
    "HAP-1008": ("the request took too long",
        "The request was not done within `request_timeout_ms`.",
        "Ask for fewer tokens, or raise `request_timeout_ms`."),
    "HAP-1009": ("the model has no chat template",
        "The checkpoint carries no chat template (a base model) and the document names none.",
        "Use /v1/completions, or set `chat_template` of the model to a file or a built-in name."),
    "HAP-1010": ("the model is not serving now",
        "The model is loading, restarting or has failed.",
        "Try again after the seconds in Retry-After; `halogend status` shows what it is doing."),
    "HAP-1011": ("the engine was lost during the request",
        "The process that served the request died after tokens had been sent.",
        "Send the request again."),
    "HAP-1012": ("the request outlived its model",
        "The model was replaced or removed, and the request was not done when `reload.drain_timeout_s` ended.",
        "Send it again; raise `drain_timeout_s` if requests may take longer."),
    "HAP-1013": ("the client did not read its stream",
        "The client took nothing off the connection for 60 s, and its request was ended to free its memory.",
        "Read the stream as it comes."),
    "HAP-1014": ("a field that cannot be honoured",
        "The field is known and this release, or this model, cannot do what it asks for.",
        "Remove the field or give it its neutral value."),
    "HAP-1015": ("an error inside halogend",
        "The request failed through a bug; others are not affected.",
        "Report it with the request id and the log line that carries it."),
    "HAP-1016": ("no valid API key",
        ("The listener wants an API key, and the request carried none, or one that is not known (any more): its "
         "file was changed and the overlap is over, or it was removed."),
        "Send `Authorization: Bearer KEY` with a key that is listed under `server.auth.keys`."),
    "HAP-1017": ("the API key does not open this listener",
        "The key is known and lacks the scope: `infer` for the inference listener, `admin` for the admin listener.",
        "Use another key, or add the scope to this one under `server.auth.keys`."),
    "HAP-1018": ("the document is another than the change was made for",
        ("`If-Match` names a revision, and the document that is asked for now has another: somebody changed it "
         "meanwhile."),
        "Read it again (`GET /admin/v1/document?of=desired` gives its tag), make the change there, hand that in."),
    "HAP-1019": ("a newer document of the same origin was handed in before",
        "`Halogen-Origin` names an object and its generation, and a higher generation of it came already.",
        "Nothing, where the newer one is meant: this one is old. Else raise the object's generation."),
    "HAP-1020": ("the class is not known",
        "`X-Halogen-Class` names a class that the model has not.",
        ("Take one of the classes in the message, or leave the header out. Classes are `eviction.sessions` of the "
         "model.")),
    "HAP-1021": ("the class is not for this API key",
        "`X-Halogen-Class` names a class of the model that the key may not name: it decides who goes first.",
        "Leave the header out, or list the class in `classes` of the key under `server.auth.keys`."),
    "HAP-1022": ("the API key asks for too much",
        "The key has as many requests running as `max_concurrent` allows, or sent more than `rpm` a minute.",
        "Try again after the seconds in Retry-After; raise the key's limit under `server.auth.keys`."),
    "HAP-1023": ("the request is for another host",
        ("Without `server.auth` the inference listener is for programs on this machine. The `Host` of the request is "
         "neither an IP address nor `localhost` nor the machine's own name, as is that of a web page whose name was "
         "made to point to 127.0.0.1 (DNS rebinding)."),
        ("Ask for 127.0.0.1 or localhost. Let a reverse proxy send `Host: localhost` (nginx: `proxy_set_header Host "
         "localhost`), list keys under `server.auth`, or write `server.auth: none` where everybody who reaches the "
         "listener may use it.")),
}
# fmt: on
