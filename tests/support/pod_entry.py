"""The first program of a stand-in container: `halogend`, in a network of its own as far as its sockets can tell.

All pods of a test share one network. What a daemon binds to every address is bound to its pod's address instead, and it
is told the address that it asked for; who connects to 127.0.0.1 comes to it.
"""

import os
import socket
import sys
from typing import Any

ADDRESS = "STAND_IN_POD_IP"
_SELF = "127.0.0.1"
_ANY = "0.0.0.0"  # noqa: S104  nothing is bound there: that is what this file is for


def own_network(address: str) -> None:
    bind, connect, getsockname = socket.socket.bind, socket.socket.connect, socket.socket.getsockname

    def bind_here(sock: socket.socket, where: Any) -> None:
        bind(sock, (address, *where[1:]) if isinstance(where, tuple) and where[0] == _ANY else where)

    def connect_here(sock: socket.socket, where: Any) -> None:
        connect(sock, (address, *where[1:]) if isinstance(where, tuple) and where[0] == _SELF else where)

    def asked_for(sock: socket.socket) -> Any:
        where = getsockname(sock)
        return (_ANY, *where[1:]) if isinstance(where, tuple) and where[0] == address else where

    socket.socket.bind = bind_here  # type: ignore[method-assign]  # the one seam where all of them pass
    socket.socket.connect = connect_here  # type: ignore[method-assign]
    socket.socket.getsockname = asked_for  # type: ignore[method-assign]  # or it would not know its own sockets


if __name__ == "__main__":
    own_network(os.environ.pop(ADDRESS))
    from halogend.cli.main import main

    sys.argv[0] = "halogend"
    sys.exit(main(sys.argv[1:]))
