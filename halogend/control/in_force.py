"""What is in force of the document itself and of no model: its server section, keys and certificates.

Owns the values and tells them to whom they concern. When they change is the reconciler's business.
"""

from __future__ import annotations

import structlog

from halogend.config.facts import FileFact
from halogend.config.placement import devices_of, host_of
from halogend.config.places import Places
from halogend.config.schema import Document
from halogend.control.access import Access
from halogend.control.house import House
from halogend.control.machine import Machine
from halogend.control.model_spec import engine_environ
from halogend.control.plan_report import NO_ROOM, rooms_of
from halogend.control.planning import Draft

_log = structlog.get_logger()


class InForce:
    """`document` is None before the first; `access` is what its keys and certificates hold, `places` where its
    fields are. Written under the reconciler's lock only."""

    def __init__(self, house: House, machine: Machine) -> None:
        self.document: Document | None = None
        self.access = Access()
        self.places = Places()
        self._house = house
        self._machine = machine
        self._warned: frozenset[str] = frozenset()

    def foresee(self, document: Document) -> None:
        """Was read and is not judged yet. Where it is the first one, an engine's process may import what its first
        model will want while it is judged."""
        if self.document is None and document.models:
            self._allow_spare(document)
            first, machine = document.models[0], self._machine.as_divided(document)
            device = devices_of(first, document, machine.devices)[0]
            self._house.spare.expect(engine_environ(first, device, machine, self._house.host))

    def put(self, drafted: Draft) -> None:
        if (document := drafted.document) is None:
            return
        self.document, self.access, self.places = document, drafted.access, drafted.parsed.places
        self._house.router.all_must_serve = document.server.ready == "all"
        self._house.metrics.is_vllm_too = document.server.metrics_compat == "vllm"
        self._house.loads.resize(document.reload.max_parallel_loads)
        rooms = rooms_of(document, self._machine.devices)
        self._house.metrics.rooms({name: (room.reserve_bytes, room.foreign_bytes) for name, room in rooms.items()})
        self._allow_spare(document)

    def _allow_spare(self, document: Document) -> None:
        """Counted as all that the whole host is asked for."""
        rooms, device = rooms_of(document, self._machine.devices), host_of(self._machine.as_divided(document).devices)
        self._house.spare.allow(
            is_wanted=document.reload.spare_worker == "auto",
            device=device,
            budget_bytes=rooms.get(device, NO_ROOM).budget_bytes,
        )

    def warn(self, files: tuple[FileFact, ...]) -> None:
        """Once, not at every reload."""
        found = frozenset(each.fault.message for each in files if each.warning)
        for message in sorted(found - self._warned):
            _log.warning("input_warning", message=message)
        self._warned = found
