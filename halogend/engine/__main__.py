"""`python -m halogend.engine --control-fd N --data-fd N --parent-pid P [--niceness N]`: started by the daemon only."""

from __future__ import annotations

import argparse
import faulthandler
import os
import socket
import sys

from halogend.wire.process import die_with_parent, hand_over_soon, import_nicely


def main() -> int:
    """The exit status: see `worker`."""
    parser = argparse.ArgumentParser(prog="python -m halogend.engine", description=__doc__)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--data-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--niceness", type=int, default=0, help="at which it imports (default 0)")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent_pid)
    hand_over_soon()
    faulthandler.enable()
    import_nicely("halogend.engine.worker", arguments.niceness)
    import structlog  # noqa: PLC0415 (imported above, nicely)

    from halogend.engine.worker import EXIT_BUG, EngineWorker  # noqa: PLC0415 (as above)
    from halogend.obs.log import configure_worker  # noqa: PLC0415 (as above)
    from halogend.wire.channel import WorkerChannel  # noqa: PLC0415 (as above)

    configure_worker("engine")
    control, data = (WorkerChannel(socket.socket(fileno=fd)) for fd in (arguments.control_fd, arguments.data_fd))
    try:
        return EngineWorker(control, data, arguments.niceness).run()
    except Exception:  # noqa: BLE001 (the last line of defence: our own bug becomes a log line and a status)
        structlog.get_logger(__name__).exception("engine_failed")
        return EXIT_BUG


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads may still load or compute; nothing they hold outlives the process
