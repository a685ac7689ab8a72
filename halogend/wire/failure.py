"""Why something ended, in any message."""

from __future__ import annotations

from halogend.wire.base import Part


class Failure(Part, frozen=True, kw_only=True):
    """Why something ended: a stable snake_case `code` (rows in api/errors.py for requests,
    an HCF/HRT/HCK code for a start) and a sentence that names the thing and the remedy.
    `param` is the request field at fault, if one is."""

    code: str
    message: str
    param: str | None = None
