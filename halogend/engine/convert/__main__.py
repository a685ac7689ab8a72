"""`python -m halogend.engine.convert SRC DST ...`: what `halogend convert` starts. Lines of JSON on stdout:

{"doing": WHAT, "done": BYTES, "total": BYTES}       now and then
{"written": {...}}  or  {"failed": {"code", "message"}}     at the end
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from types import FrameType
from typing import Any

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.convert import convert
from halogend.wire.process import die_with_parent

_FAILED, _INTERRUPTED, _TERMINATED = 1, 130, 143


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m halogend.engine.convert", description=__doc__)
    parser.add_argument("source")
    parser.add_argument("destination")
    parser.add_argument("--arguments", type=json.loads, default={}, help="of convert(), as a JSON object")
    parser.add_argument("--parent-pid", type=int, required=True)
    args = parser.parse_args()
    die_with_parent(args.parent_pid)
    signal.signal(signal.SIGTERM, _end)
    try:
        done = convert(args.source, args.destination, **args.arguments, report=_report)
    except CheckpointError as error:
        _say({"failed": {"code": error.code, "message": error.message}})
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    _say(
        {
            "written": {
                "path": str(done.path),
                "quant_policy": done.policy,
                "bytes": done.file_bytes,
                "weights": done.weights,
                "kept": done.kept,
                "dropped": done.dropped,
            }
        }
    )
    return 0


def _end(_number: int, _frame: FrameType | None) -> None:
    """What is half written goes on the way out, and a second signal does not turn it away from that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(_TERMINATED)


def _report(what: str, done: int, total: int) -> None:
    _say({"doing": what, "done": done, "total": total})


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
