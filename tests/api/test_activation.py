"""Sockets that a service manager opened: taken, compared with the document, kept for the next one."""

import os
import socket

import httpx
import pytest
from support.http_world import World
from support.scripted_router import ScriptedRouter

from halogend.api.activation import Activation
from halogend.api.addresses import ListenError, TcpAddress
from halogend.api.listener import Listener
from halogend.config.codes import Code


@pytest.fixture
def held():
    """A socket that listens, as a service manager holds it; and its port."""
    sock = socket.create_server(("127.0.0.1", 0))
    yield sock, sock.getsockname()[1]
    sock.close()


def activation(descriptor, **environ):
    """As if `descriptor` were the first that was handed over; it is given away."""
    given = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "inference", **environ}
    return Activation.from_environ(given, 7, first=descriptor)


def problem_of(taken, port=1):
    with pytest.raises(ListenError) as caught:
        taken.at(TcpAddress("127.0.0.1", port))
    assert caught.value.code == Code.ACTIVATED_SOCKET
    return caught.value.message


@pytest.mark.parametrize(
    "environ",
    [{}, {"LISTEN_PID": "8", "LISTEN_FDS": "1"}, {"LISTEN_PID": "7"}, {"LISTEN_PID": "7", "LISTEN_FDS": "x"}],
)
def test_what_is_not_meant_for_us_is_left_alone(environ):
    assert not Activation.from_environ(environ, 7)


def test_children_do_not_get_it(held):
    descriptor = os.dup(held[0].fileno())
    os.set_inheritable(descriptor, True)
    taken = activation(descriptor)
    assert not os.get_inheritable(descriptor)
    taken.close()


@pytest.mark.parametrize("name", ["inference", "unknown", "halogend.socket", ""])
async def test_a_listener_on_it_closes_and_the_next_one_serves_what_waited(held, name):
    sock, port = held
    taken = activation(os.dup(sock.fileno()), LISTEN_FDNAMES=name)
    address = TcpAddress("127.0.0.1", port)
    first = Listener(World(ScriptedRouter()).app, address)
    first.adopt(taken.at(address))
    await first.serve()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200
    await first.close(0)
    waiting = socket.create_connection(("127.0.0.1", port))
    waiting.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    second = Listener(World(ScriptedRouter()).app, address)
    second.adopt(taken.at(address))
    await second.serve()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200
    waiting.settimeout(5)
    assert waiting.recv(100).startswith(b"HTTP/1.1 200")
    waiting.close()
    await second.close(0)
    taken.close()


def test_another_port_than_the_documents_is_named(held):
    sock, port = held
    taken = activation(os.dup(sock.fileno()))
    message = problem_of(taken, port - 1)
    assert f"127.0.0.1:{port - 1}: the service manager listens at 127.0.0.1:{port}" in message
    with pytest.raises(ListenError):
        taken.at(TcpAddress("0.0.0.0", port))  # noqa: S104  the difference is what is tested
    taken.close()


def test_a_name_that_means_nothing_is_named(held):
    assert "named `metrics`" in problem_of(activation(held[0].fileno(), LISTEN_FDNAMES="metrics"))


def test_what_does_not_listen_is_named():
    with socket.socket() as sock:
        assert "no TCP socket that listens" in problem_of(activation(os.dup(sock.fileno())))


def test_what_is_no_socket_is_named(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert "is no socket" in problem_of(activation(descriptor))
    os.close(descriptor)


def test_a_unix_socket_is_named(tmp_path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "x"))
        sock.listen()
        assert "no TCP socket that listens" in problem_of(activation(os.dup(sock.fileno())))


def test_an_ipv6_socket_is_compared_by_host_and_port():
    try:
        sock = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    taken = activation(os.dup(sock.fileno()))
    found = taken.at(TcpAddress("::1", sock.getsockname()[1]))
    assert len(found) == 1
    for each in (*found, sock):
        each.close()
    taken.close()
