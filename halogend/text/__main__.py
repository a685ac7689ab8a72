"""`python -m halogend.text --control-fd N --data-fd N --engine-fd N --parent-pid P [--niceness N]`."""

from __future__ import annotations

import argparse
import socket

from halogend.wire.process import die_with_parent, hand_over_soon, import_nicely


async def _run(control_fd: int, data_fd: int, engine_fd: int) -> None:
    from halogend.text.process import Sockets, TextProcess  # noqa: PLC0415 (imported by main, nicely)

    sockets = Sockets(*(socket.socket(fileno=fd) for fd in (control_fd, data_fd, engine_fd)))
    await TextProcess(sockets).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m halogend.text")
    for name in ("control", "data", "engine"):
        parser.add_argument(f"--{name}-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--niceness", type=int, default=0, help="at which it imports (default 0)")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent_pid)
    hand_over_soon()
    import_nicely("halogend.text.process", arguments.niceness)
    import asyncio  # noqa: PLC0415 (imported above, nicely)

    from halogend.obs.log import configure_worker  # noqa: PLC0415 (as above)

    configure_worker("text")
    asyncio.run(_run(arguments.control_fd, arguments.data_fd, arguments.engine_fd))


if __name__ == "__main__":
    main()
