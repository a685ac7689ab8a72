"""halogend: a daemon that turns one declaration into live LLM engines.

The package root knows only its version. What runs where is drawn in docs/architecture.md.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("halogend")
except PackageNotFoundError:  # a source tree on sys.path that was never installed
    __version__ = "0+unknown"
