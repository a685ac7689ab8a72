"""`python -m halogend.text.check --parent-pid P MODEL`: whether a text process could serve this checkpoint. One line of
JSON on stdout: {} where it could, {"failed": {"code", "message"}} where not, {"untried": WHY} where the packages that
read tokenizers are not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from halogend.checkpoint.errors import CheckpointError
from halogend.wire.process import die_with_parent


async def check(path: str) -> dict[str, Any]:
    """What is said of the checkpoint at `path`: its tokenizer is built, and its template tried on a plain message."""
    try:
        # As told: these may not be there.
        from halogend.text.failures import StartFailedError  # noqa: PLC0415
        from halogend.text.loading import Loaded, first_template, read_text  # noqa: PLC0415
        from halogend.text.offload import Offload  # noqa: PLC0415
        from halogend.text.renderer import Renderer  # noqa: PLC0415
    except ImportError as error:
        return {"untried": str(error)}
    renderer = Renderer()
    try:
        tokenizer, own = read_text(path, "auto", _nothing)
        await first_template(Loaded(tokenizer, renderer, Offload(_nothing), own, load_s=0.0), None)
    except CheckpointError as error:
        return {"failed": {"code": error.code, "message": error.message}}
    except StartFailedError as error:
        return {"failed": {"code": error.failure.code, "message": f"{path}: {error.failure.message}"}}
    finally:
        await renderer.close()
    return {}


def _nothing() -> None:
    """Nobody asks how far it is."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m halogend.text.check", description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--parent-pid", type=int, required=True)
    args = parser.parse_args()
    die_with_parent(args.parent_pid)
    sys.stdout.write(json.dumps(asyncio.run(check(args.path))) + "\n")


if __name__ == "__main__":
    main()
