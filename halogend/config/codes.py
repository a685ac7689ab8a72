"""Every error code with its cause and remedy: one table for messages, `halogend explain` and docs.

`Code` members are the only way to name a code, so a misspelt one is an error where it is written.
HCF is the document, HCK a checkpoint, HRT the running daemon, HAP the API.
"""

from __future__ import annotations

import difflib
import enum
from typing import Self


class Code(enum.StrEnum):
    """Stable: a code is never given another meaning, and never used again once it is gone.

    Each row: the code, what it is in one line, why it comes, what to do about it.
    """

    heading: str
    cause: str
    remedy: str

    def __new__(cls, value: str, heading: str = "", cause: str = "", remedy: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.heading = heading
        member.cause = cause
        member.remedy = remedy
        return member

    # fmt: off
    # --- HCF-10xx: reading the document ---------------------------------------------------------
    NOT_UTF8 = ("HCF-1001", "the document is not UTF-8",
        "The file holds bytes that are no UTF-8, or starts with the mark of UTF-16 or UTF-32.",
        "Save the file as UTF-8. The message names the first byte at fault.")
    CONTROL_CHARACTER = ("HCF-1002", "the document holds a control character",
        "A NUL or another unprintable character is in the file; half-written and binary files look like this.",
        "Remove the character at the place given, or write the file again.")
    EMPTY_DOCUMENT = ("HCF-1003", "the document is empty",
        ("The file has no content but white space and comments. An empty file is never taken as a wish to serve "
         "nothing: editors and copy tools leave one for a moment."),
        "Write a document. To serve no model on purpose, write `models: []` and `allow_empty: true`.")
    TOO_LARGE = ("HCF-1004", "the document is too large",
        "The file, or the files of a directory together, are over 256 KiB, or aliases expand to over 50,000 values.",
        "A document holds settings only; check that the path names the right file.")
    SYNTAX = ("HCF-1005", "the document is not valid YAML",
        "The text breaks a rule of YAML at the place given: indentation, a tab, a missing colon or quote.",
        "Mend the line, or the one before it. Quote text that holds `: `, ` #` or starts with one of `[{&*!|>%@`.")
    DUPLICATE_KEY = ("HCF-1006", "the same key stands twice",
        ("A mapping has the key twice, or two files of a directory say it, so one of the two values would be lost "
         "without a word. Only sections and the lists of models, devices and keys are put together."),
        "Keep one of them. The message gives both places.")
    UNKNOWN_KEY = ("HCF-1007", "a key that is not known",
        "No field of this name exists at this place; mostly a misspelling or a wrong indentation.",
        "Use the name the message suggests, or see docs/config.md for the fields of this level.")
    WRONG_TYPE = ("HCF-1008", "a value of the wrong type",
        ('The field takes another type. Types are strict: `"8000"` is no number, `1`, `yes` and `on` are no '
         "booleans, `010`, `0x10`, `1_000` and `1:30` are no numbers."),
        "Write what the message expects: plain decimal numbers, `true` or `false`, quoted text.")
    BAD_VALUE = ("HCF-1009", "a value out of range or not among the choices",
        "The type is right and the value is not: too small, too large, or not one of the known words.",
        "Take a value the message names.")
    MISSING_FIELD = ("HCF-1010", "a required field is missing",
        "The document lacks a field that has no default.",
        "Add the field at the place given.")
    NO_VALUE = ("HCF-1011", "a key without a value",
        ("The key stands there with nothing behind it (or `null`). Absent, `false` and `0` are three things, and "
         "an empty value is mostly a template that was not filled in."),
        "Give a value, or remove the line to get the default.")
    TOO_DEEP = ("HCF-1012", "the document is nested too deep",
        "Mappings and lists stand more than 32 levels inside each other; a document needs 6.",
        "Check the brackets and the indentation at the place given.")
    YAML_FEATURE = ("HCF-1013", "a feature of YAML that is not accepted",
        ("Custom tags (`!name`), merge keys (`<<`), keys that are no plain text and several documents in one file "
         "mean different things to different tools."),
        "Write the values out. Anchors and aliases (`&a`, `*a`) are accepted.")
    UNSET_VARIABLE = ("HCF-1014", "an environment variable that is not set",
        "A path names `${VARIABLE}` and the daemon's environment has no such variable, or it is empty.",
        ("Set it where the daemon starts (Environment= in the unit), or write the path out. `$${` stands for a "
         "plain `${`."))
    MIXED_FORMS = ("HCF-1015", "the short and the full form are mixed",
        ("A document is one model at the top level (`model:`, `device:`, ...) or the full form (`apiVersion:`, "
         "`server:`, `models:`), never both."),
        ("Move the model's fields into an entry of `models:`, or remove the keys of the full form. `halogend check "
         "--print` shows any valid document in the full form."))
    API_VERSION = ("HCF-1016", "the apiVersion is missing or not known",
        "The full form names the version of its rules, so that a later release can tell old documents apart.",
        "Write `apiVersion: halogen.dev/v1alpha1` as the first line.")
    NOT_AVAILABLE_YET = ("HCF-1017", "not available yet",
        ("The field or value is part of the document's language, and this release cannot honour it. It is refused, "
         "because a setting that is read and not obeyed is worse."),
        "Remove the field or take a value the message names.")
    OUT_OF_SCOPE = ("HCF-1018", "out of scope",
        "The setting belongs to something halogend does not do.",
        "Remove it; the message says what to do in its place.")
    MORE_PROBLEMS = ("HCF-1019", "more problems than are shown",
        "The document has more than 200 problems; the first ones of the file are shown.",
        "Mend those first; many of the rest often have the same cause, such as a wrong file or indentation.")

    # --- HCF-11xx: contradictions inside the document --------------------------------------------
    NO_MODELS = ("HCF-1101", "the document holds no model",
        "`models` is absent or empty, so the daemon would end everything it serves.",
        "Add a model, or write `allow_empty: true` if that is what you want.")
    DUPLICATE_NAME = ("HCF-1102", "two models have the same name",
        "A model's name is its identity from one edit to the next and must be its own.",
        "Rename one. Models that share traffic share an entry in `aliases`, not a name.")
    ALIAS_CLASH = ("HCF-1103", "an alias clashes with a name",
        "An alias equals a model's name or stands twice in one model, so a request could mean either.",
        "Remove or rename the alias. Two models may share an alias; then traffic is split by `weight`.")
    ALIAS_WITHOUT_WEIGHT = ("HCF-1104", "an alias that no model takes traffic for",
        "Every model with this alias has `weight: 0`, so each of its requests would wait in vain.",
        "Give at least one of them a weight above 0, or remove the alias.")
    TWO_SPELLINGS = ("HCF-1105", "one thing is set in two ways",
        ("Two fields that exclude each other are both given, such as `kv_cache_ratio` and `kv_cache_bytes`, or "
         "`flash_attention` at the top of the model and in `kernels`."),
        "Keep one of them.")
    KV_RATIO_OVER_ONE = ("HCF-1106", "the KV shares of a device are over 1",
        ("`kv_cache_ratio` is a share of what a device has left for KV memory; the models on it ask for more than "
         "all of it, or leave nothing to a model without a ratio."),
        "Lower the ratios. Models without one share what is left, 0.75 at most.")
    KV_OVER_MEMORY = ("HCF-1107", "the KV memory asked for is over the device's memory",
        "The `kv_cache_bytes` of the models on a device are more than its `memory` less its `reserve`.",
        "Lower `kv_cache_bytes`, raise `memory`, or move a model to another device.")
    TIMEOUTS_CONTRADICT = ("HCF-1108", "two timeouts contradict each other",
        ("`request_timeout_ms` counts from the arrival of a request; not longer than `queue_timeout_ms`, it would "
         "end requests that are still allowed to wait. Under `strategy: replace` requests wait for as long as the old "
         "generation drains; with `drain_timeout_s` over `queue_timeout_ms` they would be refused before it is over."),
        ("Make `request_timeout_ms` longer than `queue_timeout_ms`, or 0 to switch it off; under `replace` make "
         "`queue_timeout_ms` longer than the drain and the load together."))
    LENGTHS_CONTRADICT = ("HCF-1109", "two length limits contradict each other",
        "`max_model_len` bounds prompt and answer together; `max_prompt_len` and `max_decode_len` promise more.",
        "Lower the two until their sum is at most `max_model_len`, or raise `max_model_len`.")
    OPEN_LISTENER = ("HCF-1110", "a listener beyond this machine without keys",
        "`host` is no loopback address, so anybody who reaches the port could use the models.",
        ("Bind 127.0.0.1, list API keys under `auth`, or write `auth: none` to state that open access is meant (behind "
         "a proxy that checks keys)."))
    DEVICE_LIST = ("HCF-1111", "a list of devices that cannot be used",
        ("A list of devices names each one once; `auto` lets the daemon choose and stands alone. Several devices "
         "need `exec_mode: data_parallel`, which gives each a copy of the model and needs to be told where."),
        "Name each device once, and set exec_mode where there are several.")
    RESERVE_OVER_MEMORY = ("HCF-1112", "a device's reserve is not below its memory",
        "`reserve` is taken off `memory`; nothing would be left for models.",
        "Lower `reserve` or raise `memory`.")
    ADMIN_ACCESS = ("HCF-1113", "an admin listener on TCP lacks TLS or a key",
        ("Whoever reaches the admin listener can change what is served. On TCP it needs a certificate (`admin_tls`, or "
         "`tls` for both listeners) and at least one key with the scope `admin`; a unix socket needs neither."),
        "Add what the message names, or take `unix:` and a path.")
    DUPLICATE_API_KEY = ("HCF-1114", "two API keys share a name, a file or a value",
        ("A key's name is what receipts and logs call it, and its value decides which key a request came with; both "
         "must be its own."),
        "Rename one, or give it a file and a value of its own. One key may have several scopes.")
    LISTENERS_CLASH = ("HCF-1115", "two listeners on one address",
        "`admin` and the inference listener would share a port.",
        "Take another port for one of them.")

    DEVICE_CORES = ("HCF-1120", "the cores of a device cannot be its own",
        ("Two entries of `devices` name the same core, or neither says which cores it has, or a core is not there, "
         "or a device that is no processor names some."),
        "Give each `cpu:N` cores of its own, of those the message names.")
    DEVICE_SPARE = ("HCF-1121", "a model names a device that is kept spare",
        ("A spare device holds the new generation of a model whose own device has no room for both, and must be empty "
         "for that."),
        "Name another device, or remove `spare`.")
    STRATEGY = ("HCF-1125", "a strategy that this kind of model has no use for",
        ("`shrink` takes memory from the one pool of a model on one device; `rolling` goes from replica to replica of "
         "a data-parallel one."),
        "Take `auto`, or the strategy that the message names. A model's own `reload` overrides the document's.")
    PROBATION_WITHOUT_OLD = ("HCF-1124", "a probation without a generation to go back to",
        ("`probation` keeps the generation before until the new one has proved itself; `strategy: replace` ends it "
         "before the new one is loaded."),
        "Take another strategy, or write `probation: off`.")

    # --- HCF-12xx: contradictions with files and devices -----------------------------------------
    DEVICE_NOT_THERE = ("HCF-1201", "the device is not there",
        "The document names a device this machine does not have, or that its driver does not show.",
        "Take one of the devices the message names. `halogend check --target DEVICE` checks for another machine.")
    OVER_MODEL_LIMIT = ("HCF-1202", "a length limit is over the model's own",
        "The model was trained for a context of a given length; beyond it answers are noise.",
        "Lower the field to the limit in the message, or remove it to take the model's.")
    WEIGHTS_DO_NOT_FIT = ("HCF-1203", "the weights do not fit the device",
        "Weights and working memory of the models on the device are more than its memory less its reserve.",
        "Take a smaller or stronger quantised model, another device, or raise the device's `memory`.")
    REQUEST_DOES_NOT_FIT = ("HCF-1204", "one full request does not fit the KV pool",
        ("A request of `max_model_len` tokens needs more KV memory than the model's pool may have, so it could "
         "never run."),
        "Lower `max_model_len`, raise `kv_cache_ratio` or `kv_cache_bytes`, or choose a smaller `kv_cache_dtype`.")
    TEMPLATE_UNREADABLE = ("HCF-1205", "the chat template cannot be read",
        "`chat_template` names a file that is not there or cannot be read, or a built-in name that is not known.",
        "Mend the path, or remove the field to take the model's own template.")
    KEY_FILE = ("HCF-1206", "an API key's file cannot be used",
        ("The file is missing, unreadable, empty, too large, or holds something that is no key. A key that is named "
         "and not there never means open access. What was active stays active."),
        ("Write the key, and nothing else, into the file: at most 4096 visible ASCII characters on one line, such as "
         "from `openssl rand -hex 32`."))
    TLS_FILE = ("HCF-1207", "a certificate or its private key cannot be used",
        ("The file is missing or unreadable, is no PEM, the key is not the certificate's or has a pass phrase, or the "
         "certificate is not valid now. What was active stays active."),
        ("Name a PEM certificate that is valid now, its chain behind it, and its own key without a pass phrase. A file "
         "that is put right is noticed by itself."))

    DEVICES_OVER_HOST = ("HCF-1210", "the devices ask for more memory than the host has",
        "Several `cpu:N` divide the memory of one host; the sizes that are stated are more than that, or leave none.",
        "Lower `memory` of some, or leave it out: what the others leave is shared by cores.")

    # --- HCK-10xx: checkpoints ---------------------------------------------------------------------
    CHECKPOINT_UNKNOWN_FORMAT = ("HCK-1001", "not a known checkpoint format",
        ("The first bytes of the file are those of no format halogend reads (the name does not count), or the "
         "directory lacks what makes it a model."),
        ("Name a GGUF file, or a Hugging Face directory with config.json and safetensors files. A web page saved in "
         "a file's place starts with `<`."))
    CHECKPOINT_FORMAT_CONTRADICTION = ("HCK-1002", "the file contradicts load_format",
        "`load_format` names one format, and what lies at the path of `model` is of another.",
        "Remove `load_format` (auto decides by the bytes), or name the right file.")
    CHECKPOINT_TRUNCATED = ("HCK-1003", "the file is shorter than its header says",
        "A download or copy ended early.",
        "Fetch the file again and compare its size or digest with the source's.")
    CHECKPOINT_BAD_METADATA = ("HCK-1004", "a metadata key is missing or bad",
        ("The header, or a JSON file of the directory, lacks a key the architecture needs, holds a value of the "
         "wrong type or out of range, or cannot be parsed."),
        "Fetch the file again, or convert the model again with a current converter; the message names the key.")
    CHECKPOINT_ARCHITECTURE = ("HCK-1005", "the architecture is not supported",
        "The model is of a kind this release cannot run, or sets a parameter of its kind that it does not know.",
        "Take a model of a kind the message names.")
    CHECKPOINT_QUANTISATION = ("HCK-1006", "a quantisation type is not supported",
        "A tensor is stored in a type, or the model was quantised by a method, that this release cannot read.",
        "Take the model in another quantisation: any type of GGUF, AWQ or GPTQ of 4 bits, FP8, F16, BF16 or F32.")
    CHECKPOINT_MISSING_TENSOR = ("HCK-1007", "a tensor is missing",
        "The file lacks a tensor that the architecture or the index needs.",
        "Fetch or convert the file again; the message names the tensor.")
    CHECKPOINT_TENSOR_MISMATCH = ("HCK-1008", "a tensor is surplus or has the wrong shape",
        "The file holds a tensor the architecture does not know, or one whose shape contradicts the metadata.",
        "Check that tensors and metadata (or config.json) are of one model; the message names the tensor.")
    CHECKPOINT_TOKENIZER = ("HCK-1009", "the tokenizer is bad",
        ("The vocabulary, its scores, types or merges, or the special tokens are missing or do not fit together, "
         "or the tokenizer is of a kind this release does not know."),
        "Fetch the tokenizer's files again, or convert the model again with them; the message names the key.")
    CHECKPOINT_UNREADABLE = ("HCK-1010", "the model's file is not there or cannot be read",
        ("The path of `model`, or a file that the model names, does not exist, is of the wrong kind, is a symlink to "
         "nothing, or the daemon's user may not read it."),
        ("Mend the path or the permissions, or finish the download. A relative path starts at the daemon's working "
         "directory."))
    CHECKPOINT_BAD_INDEX = ("HCK-1011", "the tensor index is bad",
        ("Entries of a tensor table or an index overlap, stand twice, leave holes or are misaligned, or it cannot be "
         "parsed, or names other files than there are."),
        "The file is damaged or hostile: fetch it again from a source you trust.")
    CHECKPOINT_VERSION = ("HCK-1012", "the version of the format is not supported",
        "The file is of a version of its format that this release does not read, or is of the other byte order.",
        "Convert the file to a version the message names.")
    CHECKPOINT_IN_PARTS = ("HCK-1013", "the parts of a split checkpoint do not fit together",
        ("The file is one of several parts, and is not the first, or a file beside it that bears the name of a part "
         "belongs to another model."),
        ("Name the first part, `...-00001-of-0000N.gguf`, and keep all parts of one model in one folder under the "
         "names they were made with."))

    # --- HRT-1xxx: the running daemon --------------------------------------------------------------
    ENGINE_DIED = ("HRT-1001", "an engine died",
        ("The engine's process ended without being asked: killed by the kernel for memory, by a signal, or by a "
         "bug. Its running requests got an error; it is restarted with back-off."),
        "See the exit status and the last lines of its log in `halogend status` and the receipt.")
    CRASH_LOOP = ("HRT-1002", "an engine dies again and again",
        "The engine died too often in a short time and is no longer restarted.",
        "Read the last lines of its log in `halogend status`, mend the cause, then `halogend reload`.")
    LOAD_NO_PROGRESS = ("HRT-1003", "a load made no progress",
        ("No tensor was loaded and no kernel compiled for `load.progress_timeout_s`; slow loads that move are "
         "never cut."),
        "Check the disk or network file system the model lies on, or raise `load.progress_timeout_s`.")
    OVERLAP_DOES_NOT_FIT = ("HRT-1004", "old and new model do not fit in memory together",
        ("A swap without a gap needs weights, working memory and the smallest KV pool of the new model beside the "
         "old one. The device has no room for that, no spare or idle one has, and the old pool cannot give enough."),
        ("Lower `kv_cache_ratio`, free memory, take a smaller model, keep a device spare, or allow a gap with "
         "`reload: {strategy: replace}`."))
    TEMPLATE_DOES_NOT_FINISH = ("HRT-1005", "the chat template does not finish",
        "Rendering the template took more time or output than allowed; it loops, or grows without end.",
        "Mend the template's loops, or remove `chat_template` to take the model's own.")
    TEMPLATE_INVALID = ("HRT-1006", "the chat template is not valid",
        "The template has a syntax error, uses what is not allowed, or failed when it was tried.",
        "Mend the template at the line given, or remove `chat_template` to take the model's own.")
    INPUTS_CHANGED = ("HRT-1007", "a file changed under a running model",
        ("A restart found another file than the one the model was planned with, and does not pass off other "
         "weights as the same."),
        "`halogend reload` takes the files as they are now; or put the old file back.")
    PORT_BUSY = ("HRT-1008", "the port is taken",
        "Another program listens on the address and port of `server`.",
        "Find it with `ss -ltnp`, end it, or choose another `port`.")
    LISTENER_ADDRESS = ("HRT-1009", "the listener's address cannot be used",
        ("`host` is no address of this machine or a name that does not resolve, or the port needs rights the "
         "daemon does not have (below 1024)."),
        "Take an address of this machine (`ip addr`), 127.0.0.1 or 0.0.0.0, and a port of 1024 or above.")
    START_FAILED = ("HRT-1010", "a model did not start",
        "One of the model's processes ended or gave up before it was ready.",
        "The message and the last lines of its log say why.")
    ENGINE_WEDGED = ("HRT-1011", "an engine stopped making progress",
        "The engine had work and its progress counter stood still; it was killed and is restarted.",
        "If it comes again: check the host for stalls (swap, throttling) and report it with the log.")
    ADMIN_SOCKET = ("HRT-1012", "the admin socket cannot be used",
        "Another daemon listens on the path, its folder does not exist, or the user may not write there.",
        "End the other daemon, or name another path in `server.admin`.")
    TEXT_PROCESS_DIED = ("HRT-1013", "a text process died",
        "The process that turns text into tokens and back ended without being asked; it is restarted.",
        "See the exit status and the last lines of its log in `halogend status`.")
    WIRE_VERSION = ("HRT-1014", "two parts of different releases met",
        "A child process speaks another version of the messages: the package was replaced under a running daemon.",
        "Restart the daemon.")
    LIVE_UPDATE_REFUSED = ("HRT-1015", "a running model refused a live change",
        "One of the model's processes could not take the new values; the old ones are in force.",
        "The message says which value and why.")
    OUT_OF_MEMORY = ("HRT-1016", "memory ran out",
        "An allocation failed while the model loaded or served.",
        ("Lower `kv_cache_ratio` or `max_batch`, set `memory` of the device to what it may really use, or take a "
         "smaller model."))
    SOURCE_UNREADABLE = ("HRT-1017", "the document's file cannot be read",
        "The file is not there or the daemon's user may not read it. What was active stays active.",
        "Put the file back or mend its permissions; a change on disk is noticed by itself.")
    HELD = ("HRT-1018", "changes are held",
        ("Somebody froze the triggers with `halogend hold`: an edit of the file, SIGHUP and a plain `halogend reload` "
         "change nothing until they are freed."),
        "`halogend resume` frees them and applies what was put off; `halogend reload --force` applies the source once.")
    INTERRUPTED = ("HRT-1019", "the daemon ended before this change did",
        "The receipt was still open when the daemon stopped, was killed, or lost power.",
        "The daemon that came after read its source anew; `halogend receipts` shows what came of it.")
    ACTIVATED_SOCKET = ("HRT-1020", "the service manager's socket is another one",
        ("With socket activation the service manager opens the inference listener's socket and keeps it through "
         "restarts. The one it handed over has another address than `server`, or is no TCP socket that listens."),
        ("Make `host` and `port` and the `ListenStream=` lines of halogend.socket say the same; after a change there: "
         "`systemctl daemon-reload`, then restart halogend.socket and halogend.service."))
    KERNEL_NOT_FOUND = ("HRT-1102", "kernel not found for op",
        "A kernel is missing from the cache and compiling is not allowed.",
        "Compile it with `--warmup-kernel` on a machine where that is allowed, or set `kernels.compile: auto`.")

    # --- HAP-1xxx: requests ------------------------------------------------------------------------
    MODEL_NOT_FOUND = ("HAP-1001", "the model is not known",
        "`model` of the request is neither a name nor an alias of a model that is served.",
        "Take one of the names in the message, or from GET /v1/models.")
    BAD_REQUEST = ("HAP-1002", "the request is not valid",
        "The body is no JSON, or a field has the wrong type or a value out of range.",
        "Mend the field the error's `param` names.")
    UNKNOWN_FIELD = ("HAP-1003", "a field of the request is not known",
        "The route has no field of this name; dropping it without a word would change what the caller asked for.",
        "Remove the field or mend its name.")
    BODY_TOO_LARGE = ("HAP-1004", "the body is too large",
        "The request's body is over 10 MiB.",
        "Send less; no model takes a prompt of that length.")
    PROMPT_TOO_LONG = ("HAP-1005", "the prompt is too long",
        ("Prompt, or prompt and answer together, are over a limit of the model. Nothing is ever cut off in "
         "silence."),
        "Shorten the prompt or `max_tokens` by what the message says, or raise the limit it names.")
    QUEUE_FULL = ("HAP-1006", "the queue is full",
        "`max_queue` requests wait already.",
        "Try again after the seconds in Retry-After; raise `max_queue` or `max_batch`, or add capacity.")
    QUEUE_TIMEOUT = ("HAP-1007", "the request waited too long",
        "No room came free within `queue_timeout_ms`.",
        "Try again after the seconds in Retry-After; add capacity if it is common.")
    REQUEST_TIMEOUT = ("HAP-1008", "the request took too long",
        "The request was not done within `request_timeout_ms`.",
        "Ask for fewer tokens, or raise `request_timeout_ms`.")
    TEMPLATE_MISSING = ("HAP-1009", "the model has no chat template",
        "The checkpoint carries no chat template (a base model) and the document names none.",
        "Use /v1/completions, or set `chat_template` of the model to a file or a built-in name.")
    NOT_SERVING = ("HAP-1010", "the model is not serving now",
        "The model is loading, restarting or has failed.",
        "Try again after the seconds in Retry-After; `halogend status` shows what it is doing.")
    ENGINE_LOST = ("HAP-1011", "the engine was lost during the request",
        "The process that served the request died after tokens had been sent.",
        "Send the request again.")
    DRAIN_DEADLINE = ("HAP-1012", "the request outlived its model",
        "The model was replaced or removed, and the request was not done when `reload.drain_timeout_s` ended.",
        "Send it again; raise `drain_timeout_s` if requests may take longer.")
    SLOW_READER = ("HAP-1013", "the client did not read its stream",
        "The client took nothing off the connection for 60 s, and its request was ended to free its memory.",
        "Read the stream as it comes.")
    NOT_SUPPORTED = ("HAP-1014", "a field that cannot be honoured",
        "The field is known and this release, or this model, cannot do what it asks for.",
        "Remove the field or give it its neutral value.")
    INTERNAL = ("HAP-1015", "an error inside halogend",
        "The request failed through a bug; others are not affected.",
        "Report it with the request id and the log line that carries it.")
    NO_VALID_KEY = ("HAP-1016", "no valid API key",
        ("The listener wants an API key, and the request carried none, or one that is not known (any more): its "
         "file was changed and the overlap is over, or it was removed."),
        "Send `Authorization: Bearer KEY` with a key that is listed under `server.auth.keys`.")
    KEY_SCOPE = ("HAP-1017", "the API key does not open this listener",
        "The key is known and lacks the scope: `infer` for the inference listener, `admin` for the admin listener.",
        "Use another key, or add the scope to this one under `server.auth.keys`.")
    REVISION_MISMATCH = ("HAP-1018", "the document is another than the change was made for",
        ("`If-Match` names a revision, and the document that is asked for now has another: somebody changed it "
         "meanwhile."),
        "Read it again (`GET /admin/v1/document?of=desired` gives its tag), make the change there, hand that in.")
    STALE_ORIGIN = ("HAP-1019", "a newer document of the same origin was handed in before",
        "`Halogen-Origin` names an object and its generation, and a higher generation of it came already.",
        "Nothing, where the newer one is meant: this one is old. Else raise the object's generation.")
    # fmt: on


def find(text: str) -> Code | None:
    """The code as a user types it: any case, with or without the dash."""
    wanted = text.strip().upper().replace("-", "")
    return next((code for code in Code if code.value.replace("-", "") == wanted), None)


def nearest(text: str) -> tuple[Code, ...]:
    """At most five codes that look like `text`, best first; of its family if nothing looks alike."""
    wanted = text.strip().upper()
    close = difflib.get_close_matches(wanted, [code.value for code in Code], n=5, cutoff=0.7)
    return tuple(Code(value) for value in close) or tuple(code for code in Code if code.value[:3] == wanted[:3])[:5]
