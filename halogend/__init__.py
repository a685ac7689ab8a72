"""halogend: a daemon that turns one declaration into live LLM engines.

The package root knows only its version. What runs where is drawn in docs/architecture.md.
"""

from functools import cache


@cache
def version() -> str:
    """As installed."""
    from importlib import metadata  # noqa: PLC0415  a tenth of a second, which a worker that starts has no use for

    try:
        return metadata.version("halogend")
    except metadata.PackageNotFoundError:  # a source tree on sys.path that was never installed
        return "0+unknown"
