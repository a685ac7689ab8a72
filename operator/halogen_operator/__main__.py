"""`python -m halogen_operator`: the operator as a program. The environment is read here alone."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata

from halogen_operator import login
from halogen_operator.app import run
from halogen_operator.settings import Settings, parse
from halogend.obs.log import configure_daemon

_NO_WAY = 2


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit status: 0 after a stop by SIGTERM or SIGINT, 2 if there is no way to the API server or it
    cannot listen."""
    settings = parse(arguments, environment, metadata.version("halogend"))
    configure_daemon(level=settings.log_level)
    _allow_connections()
    try:
        access = login.chosen(settings.server, settings.kubeconfig, settings.context, environment)
    except login.LoginError as error:
        sys.stderr.write(f"halogen-operator: {error}\n")
        return _NO_WAY
    try:
        asyncio.run(_until_signalled(settings, access))
    except OSError as error:  # somebody has the port
        sys.stderr.write(f"halogen-operator: {error}\n")
        return _NO_WAY
    return 0


def _allow_connections() -> None:
    """Each pod holds a connection while it is asked: as many as may be, not the 1,024 that many runtimes begin with."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _until_signalled(settings: Settings, access: login.Access) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop, access=access)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
