"""`halogend ui`: the page of the admin listener in a browser of this machine, as long as the command runs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from halogend.cli import admin

_PORTS = range(65_536)


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ui",
        help="the daemon's page in a browser, until interrupted",
        description="Opens a port of 127.0.0.1 that passes reading requests on to the admin listener, and prints the"
        " address to open. The token in it is good for one browser, once; what is not that browser gets nothing."
        " Nothing can be changed through it. From elsewhere: ssh -t -L PORT:127.0.0.1:PORT, with --port PORT.",
    )
    parser.add_argument("--port", type=_port, default=0, help="of 127.0.0.1; default: one that is free")
    admin.add_address(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from halogend.cli.ui_proxy import Proxy

    where = admin.address(args)
    try:
        admin.look(where, "/status")
        proxy = Proxy(where, args.port)
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"127.0.0.1:{args.port}: {error.strerror}; take another --port", file=sys.stderr)
        return 1
    with proxy:
        try:
            print(f"{proxy.url}\n(good once; ends with this command: Ctrl-C)", flush=True)
            proxy.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) in _PORTS):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)
