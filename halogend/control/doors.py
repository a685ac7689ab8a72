"""Listeners for a daemon that has no document: whoever hands one in, and whoever asks how it stands, must find
a door. Owns which server section counts then."""

from __future__ import annotations

import asyncio
from functools import partial

from halogend.config.problems import Problem
from halogend.config.schema import ServerConfig
from halogend.control.acceptance import Sockets, Source
from halogend.control.access import Access, look
from halogend.control.aside import aside
from halogend.control.machine import Machine
from halogend.control.planning import LOOK_LIMIT_S, draft
from halogend.control.source import SourceError


async def open_doors(source: Source, sockets: Sockets, machine: Machine, judging: asyncio.Lock) -> Problem | None:
    """Those of the source's document, where all it says of the server is right, else the default ones. The
    problem says why there are none."""
    problem: Problem | None = None
    for server in (await _server(source, machine), ServerConfig()):
        if server is None:
            continue
        try:
            access, facts = await aside(partial(look, server), LOOK_LIMIT_S)
        except TimeoutError:
            continue  # no more than a key that is not there
        if any(not each.warning for each in facts):
            continue  # a key that is not there never means an open door
        async with judging:
            try:
                problem = await sockets.prepare(server, access) or await sockets.commit()
            finally:
                await sockets.discard()
        if problem is None:
            return None
    return problem


async def _server(source: Source, machine: Machine) -> ServerConfig | None:
    try:
        given = source.given(await source.content())
    except SourceError:
        return None
    drafted = await draft(given, source.environ, machine, Access())
    found = drafted.parsed.partial
    is_wrong = any(f"{each.path}.".startswith("server.") for each in drafted.problems)
    return None if found is None or is_wrong else found.server
