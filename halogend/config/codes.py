"""Every error code with its cause and remedy: one table for messages, `halogend explain` and docs.

`Code` members are the only way to name a code, so a misspelt one is an error where it is written.
HCF is the document, HCK a checkpoint, HRT the running daemon, HAP the API.
"""

from __future__ import annotations

import difflib
import enum
from typing import Self

from halogend.config.meanings import MEANINGS


class Code(enum.StrEnum):
    """Stable: a code is never given another meaning, and never used again once it is gone. A name without a row
    in `meanings` is an error at import."""

    heading: str
    cause: str
    remedy: str

    def __new__(cls, value: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.heading, member.cause, member.remedy = MEANINGS[value]
        return member

    # reading the document (HCF-10xx)
    NOT_UTF8 = "HCF-1001"
    CONTROL_CHARACTER = "HCF-1002"
    EMPTY_DOCUMENT = "HCF-1003"
    TOO_LARGE = "HCF-1004"
    SYNTAX = "HCF-1005"
    DUPLICATE_KEY = "HCF-1006"
    UNKNOWN_KEY = "HCF-1007"
    WRONG_TYPE = "HCF-1008"
    BAD_VALUE = "HCF-1009"
    MISSING_FIELD = "HCF-1010"
    NO_VALUE = "HCF-1011"
    TOO_DEEP = "HCF-1012"
    YAML_FEATURE = "HCF-1013"
    UNSET_VARIABLE = "HCF-1014"
    MIXED_FORMS = "HCF-1015"
    API_VERSION = "HCF-1016"
    NOT_AVAILABLE_YET = "HCF-1017"
    OUT_OF_SCOPE = "HCF-1018"
    MORE_PROBLEMS = "HCF-1019"

    # contradictions (HCF-11xx, and HCF-12xx with files and devices)
    NO_MODELS = "HCF-1101"
    DUPLICATE_NAME = "HCF-1102"
    ALIAS_CLASH = "HCF-1103"
    ALIAS_WITHOUT_WEIGHT = "HCF-1104"
    TWO_SPELLINGS = "HCF-1105"
    KV_RATIO_OVER_ONE = "HCF-1106"
    KV_OVER_MEMORY = "HCF-1107"
    TIMEOUTS_CONTRADICT = "HCF-1108"
    LENGTHS_CONTRADICT = "HCF-1109"
    OPEN_LISTENER = "HCF-1110"
    DEVICE_LIST = "HCF-1111"
    RESERVE_OVER_MEMORY = "HCF-1112"
    ADMIN_ACCESS = "HCF-1113"
    DUPLICATE_API_KEY = "HCF-1114"
    LISTENERS_CLASH = "HCF-1115"
    DEVICE_CORES = "HCF-1120"
    DEVICE_SPARE = "HCF-1121"
    DEVICE_THERMAL = "HCF-1122"
    STRATEGY = "HCF-1125"
    PROBATION_WITHOUT_OLD = "HCF-1124"
    WATERMARKS = "HCF-1130"
    SESSION_CLASSES = "HCF-1131"
    PINS_LEAVE_NO_ROOM = "HCF-1132"
    POOL_BOUNDS = "HCF-1133"
    LANES = "HCF-1134"
    KERNELS = "HCF-1135"
    DEVICE_NOT_THERE = "HCF-1201"
    OVER_MODEL_LIMIT = "HCF-1202"
    WEIGHTS_DO_NOT_FIT = "HCF-1203"
    REQUEST_DOES_NOT_FIT = "HCF-1204"
    TEMPLATE_UNREADABLE = "HCF-1205"
    KEY_FILE = "HCF-1206"
    TLS_FILE = "HCF-1207"
    NO_DIGESTS = "HCF-1208"
    DEVICES_OVER_HOST = "HCF-1210"
    DEVICE_UNUSABLE = "HCF-1211"

    # checkpoints
    CHECKPOINT_UNKNOWN_FORMAT = "HCK-1001"
    CHECKPOINT_FORMAT_CONTRADICTION = "HCK-1002"
    CHECKPOINT_TRUNCATED = "HCK-1003"
    CHECKPOINT_BAD_METADATA = "HCK-1004"
    CHECKPOINT_ARCHITECTURE = "HCK-1005"
    CHECKPOINT_QUANTISATION = "HCK-1006"
    CHECKPOINT_MISSING_TENSOR = "HCK-1007"
    CHECKPOINT_TENSOR_MISMATCH = "HCK-1008"
    CHECKPOINT_TOKENIZER = "HCK-1009"
    CHECKPOINT_UNREADABLE = "HCK-1010"
    CHECKPOINT_BAD_INDEX = "HCK-1011"
    CHECKPOINT_VERSION = "HCK-1012"
    CHECKPOINT_IN_PARTS = "HCK-1013"
    CHECKPOINT_SHARDS = "HCK-1014"
    CHECKPOINT_DAMAGED = "HCK-1015"
    CHECKPOINT_NO_SPACE = "HCK-1016"
    CHECKPOINT_UNWRITABLE = "HCK-1017"

    # the running daemon
    ENGINE_DIED = "HRT-1001"
    CRASH_LOOP = "HRT-1002"
    LOAD_NO_PROGRESS = "HRT-1003"
    OVERLAP_DOES_NOT_FIT = "HRT-1004"
    TEMPLATE_DOES_NOT_FINISH = "HRT-1005"
    TEMPLATE_INVALID = "HRT-1006"
    INPUTS_CHANGED = "HRT-1007"
    PORT_BUSY = "HRT-1008"
    LISTENER_ADDRESS = "HRT-1009"
    START_FAILED = "HRT-1010"
    ENGINE_WEDGED = "HRT-1011"
    ADMIN_SOCKET = "HRT-1012"
    TEXT_PROCESS_DIED = "HRT-1013"
    WIRE_VERSION = "HRT-1014"
    LIVE_UPDATE_REFUSED = "HRT-1015"
    OUT_OF_MEMORY = "HRT-1016"
    SOURCE_UNREADABLE = "HRT-1017"
    HELD = "HRT-1018"
    INTERRUPTED = "HRT-1019"
    ACTIVATED_SOCKET = "HRT-1020"
    KERNEL_NOT_FOUND = "HRT-1102"

    # requests
    MODEL_NOT_FOUND = "HAP-1001"
    BAD_REQUEST = "HAP-1002"
    UNKNOWN_FIELD = "HAP-1003"
    BODY_TOO_LARGE = "HAP-1004"
    PROMPT_TOO_LONG = "HAP-1005"
    QUEUE_FULL = "HAP-1006"
    QUEUE_TIMEOUT = "HAP-1007"
    REQUEST_TIMEOUT = "HAP-1008"
    TEMPLATE_MISSING = "HAP-1009"
    NOT_SERVING = "HAP-1010"
    ENGINE_LOST = "HAP-1011"
    DRAIN_DEADLINE = "HAP-1012"
    SLOW_READER = "HAP-1013"
    NOT_SUPPORTED = "HAP-1014"
    INTERNAL = "HAP-1015"
    NO_VALID_KEY = "HAP-1016"
    KEY_SCOPE = "HAP-1017"
    REVISION_MISMATCH = "HAP-1018"
    STALE_ORIGIN = "HAP-1019"
    CLASS_NOT_KNOWN = "HAP-1020"
    CLASS_NOT_ALLOWED = "HAP-1021"
    KEY_QUOTA = "HAP-1022"
    HOST_NOT_ALLOWED = "HAP-1023"


def find(text: str) -> Code | None:
    """The code as a user types it: any case, with or without the dash."""
    wanted = text.strip().upper().replace("-", "")
    return next((code for code in Code if code.value.replace("-", "") == wanted), None)


def nearest(text: str) -> tuple[Code, ...]:
    """At most five codes that look like `text`, best first; of its family if nothing looks alike."""
    wanted = text.strip().upper()
    close = difflib.get_close_matches(wanted, [code.value for code in Code], n=5, cutoff=0.7)
    return tuple(Code(value) for value in close) or tuple(code for code in Code if code.value[:3] == wanted[:3])[:5]
