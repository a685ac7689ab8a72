"""How the text process and its rendering child frame what they say: a u32 length, then JSON.

ASCII only, so that any string of Python's gets across.
"""

from __future__ import annotations

import json
import struct

LENGTH = struct.Struct("<I")


def frame(value: object) -> bytes:
    body = json.dumps(value).encode()
    return LENGTH.pack(len(body)) + body
