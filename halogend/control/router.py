"""Names to generations: which one answers a request, who waits, and the one assignment of a switch.

Owns the routes and the leases. Must never start, stop or judge a generation: convergence does.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

from halogend.control.answer import Answer
from halogend.control.client import Order
from halogend.control.generation import Generation
from halogend.control.leases import Lease
from halogend.control.replica import Replica
from halogend.control.requests import CLASS_HEADER, InferenceRequest, RequestError, SamplingChoice, ServedModel
from halogend.control.route import Ended, Route, RouteSettings
from halogend.wire.requests import Sampling


class Router:
    """Leases go to the serving generation; while there is none, requests wait."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        on_waiting: Callable[[str, int], None] = lambda name, count: None,
    ) -> None:
        self._clock = clock
        self._on_waiting = on_waiting
        self._routes: dict[str, Route] = {}
        self._closing = False
        self.all_must_serve = False  # server.ready of the document

    # --- requests -------------------------------------------------------------------------------

    async def submit(self, request: InferenceRequest) -> Answer:
        """A lease on a serving generation. Waits while nothing serves, up to the queue timeout.

        Raises RequestError: model_not_found, unknown_class, class_not_allowed, queue_full, queue_timeout,
        not_serving, shutting_down.
        """
        route = self._pick(request.model)
        _check_class(request, route)
        seed = request.sampling.seed if request.sampling.seed is not None else secrets.randbits(63)
        answer = Answer(route.name, request, seed, self._dispatch)
        await self._dispatch(answer)
        return answer

    async def _dispatch(self, answer: Answer) -> None:
        route = self._routes.get(answer.model)
        if route is None:
            raise RequestError("model_not_found", f"the model {answer.model} was removed", param="model")
        if route.for_lease(answer) is None and not self._closing:
            await self._wait_for_serving(route, answer)
        if self._closing:
            raise RequestError("shutting_down", "the server is shutting down", retry_after_s=5)
        replica = route.for_lease(answer)
        if replica is None:
            raise RequestError("not_serving", f"{route.name} is not serving: {route.gone}", retry_after_s=5)
        self._lease(route, answer, replica)

    async def _wait_for_serving(self, route: Route, answer: Answer) -> None:
        if route.waiting >= route.settings.max_queue:
            raise RequestError("queue_full", f"{route.name}: {route.waiting} requests wait already", retry_after_s=1)
        self._count_waiting(route, 1)
        try:
            async with asyncio.timeout(route.settings.queue_timeout_s):
                while route.for_lease(answer) is None and route.gone is None and not self._closing:
                    await route.changed.wait()
        except TimeoutError as error:
            limit = f"{route.settings.queue_timeout_s:g} s"
            message = f"{route.name} did not become ready within queue_timeout_ms ({limit})"
            raise RequestError("queue_timeout", message, retry_after_s=1) from error
        finally:
            self._count_waiting(route, -1)

    def _count_waiting(self, route: Route, more: int) -> None:
        route.waiting += more
        self._on_waiting(route.name, route.waiting)

    def _lease(self, route: Route, answer: Answer, replica: Replica) -> None:
        request = answer.request
        sampling = _resolve(request.sampling, route.settings.sampling, answer.seed)
        answer.lease(replica, Order(request.prompt, sampling, request.max_tokens, request.stop, request.caller))

    def _pick(self, name: str) -> Route:
        """Two models that share an alias split its traffic by weight (smooth weighted round robin)."""
        routes = [route for route in self._routes.values() if name in route.names()]
        exact = self._routes.get(name)
        if exact is not None:
            return exact
        if not routes:
            known = ", ".join(sorted({each for route in self._routes.values() for each in route.names()})) or "none"
            raise RequestError("model_not_found", f"no model is named {name[:80]!r}; known: {known}", param="model")
        for route in routes:
            route.credit += route.settings.weight
        chosen = max(routes, key=lambda route: route.credit)
        chosen.credit -= sum(route.settings.weight for route in routes)
        return chosen

    # --- changes (convergence calls these) --------------------------------------------------------

    def open(self, name: str, settings: RouteSettings) -> None:
        """Makes the name known; requests wait until `switch`."""
        self._routes.setdefault(name, Route(name, settings)).gone = None

    def switch(self, name: str, generation: Generation, settings: RouteSettings) -> Generation | None:
        """One assignment. Leases without a token go over; the generation before is returned."""
        route = self._routes[name]
        old = route.serving
        if old is not None and set(route.settings.aliases) - set(settings.aliases):
            route.kept_aliases = route.settings.aliases
        route.beside = None
        route.serving, route.settings, route.since, route.gone = generation, settings, self._clock(), None
        if old is not None:
            self._go_over(route, old.leases)
        route.wake()
        return old

    def serve_beside(self, name: str, generation: Generation) -> None:
        """It takes requests too, beside what serves, until `switch` or `serve_alone`."""
        route = self._routes[name]
        route.beside = generation
        route.wake()

    def serve_alone(self, name: str) -> None:
        """The inverse."""
        self._routes[name].beside = None

    def go_over(self, name: str, replica: Replica) -> None:
        """It takes no further request: its leases without a token go to others."""
        self._go_over(self._routes[name], frozenset(replica.leases))

    def _go_over(self, route: Route, leases: frozenset[Lease]) -> None:
        for answer in [each for each in leases if isinstance(each, Answer) and not each.has_token]:
            if (replica := route.roomiest()) is not None:
                self._lease(route, answer, replica)

    def set_settings(self, name: str, settings: RouteSettings) -> None:
        self._routes[name].settings = settings

    def hold(self, name: str) -> Generation | None:
        """Requests wait from now on; what runs goes on. Returns the generation that served."""
        route = self._routes[name]
        old, route.serving = route.serving, None
        return old

    def give_up(self, name: str, reason: str) -> None:
        """Nothing will serve until the next change: waiting requests are answered now."""
        route = self._routes[name]
        route.gone = reason
        route.wake()

    def forget_old_names(self, name: str) -> None:
        """The draining generation is gone, and with it the names only it had."""
        route = self._routes.get(name)
        if route is not None:
            route.kept_aliases = ()

    def close(self, name: str) -> Generation | None:
        """The model is removed: its names are unknown from now on."""
        route = self._routes.pop(name, None)
        if route is None:
            return None
        route.gone = "the model was removed"
        route.wake()
        return route.serving

    def shut(self) -> None:
        """No new request; those that wait are answered."""
        self._closing = True
        for route in self._routes.values():
            route.gone = route.gone or "the server is shutting down"
            route.wake()

    # --- views --------------------------------------------------------------------------------

    def route(self, name: str) -> Route | None:
        return self._routes.get(name)

    def watch(self, name: str, ended: Ended) -> None:
        """Who hears of each request's end from now on: which generation answered, and whether it let it down."""
        route = self._routes.get(name)
        if route is not None:
            route.ended = ended

    def record_end(self, name: str, generation: int, *, is_error: bool) -> None:
        """A request ended, as its client sees it: `is_error` is a 5xx, or an error event."""
        route = self._routes.get(name)
        if route is not None and route.ended is not None:
            route.ended(generation, is_error=is_error)

    def record_duration(self, name: str, seconds: float) -> None:
        """How long a whole request took; `drain_timeout_s: auto` is derived from these."""
        route = self._routes.get(name)
        if route is not None:
            route.durations.append(seconds)

    def request_p99_s(self, name: str) -> float:
        route = self._routes.get(name)
        return 0.0 if route is None else route.request_p99_s()

    def served(self) -> tuple[ServedModel, ...]:
        return tuple(route.line() for route in self._routes.values())

    def ready(self, model: str | None) -> bool:
        """Is this model serving; with None, are as many as `server.ready` asks for."""
        if self._closing:
            return False
        routes = [route for route in self._routes.values() if model is None or model in route.names()]
        serving = [route.alive() is not None for route in routes]
        return all(serving) and bool(serving) if self.all_must_serve else any(serving)

    def health(self) -> dict[str, Any]:
        """Every engine's progress, from what its workers last said."""
        now = time.monotonic()
        models = {route.name: route.health(now) for route in self._routes.values()}
        return {"healthy": bool(models) and all(each["healthy"] for each in models.values()), "models": models}

    def waiting(self, name: str) -> int:
        route = self._routes.get(name)
        return 0 if route is None else route.waiting


def _check_class(request: InferenceRequest, route: Route) -> None:
    """A class decides who goes first, so one that is not known or not allowed is no slip to pass over."""
    wanted, known = request.caller.klass, route.settings.classes
    if not wanted:
        return
    if wanted not in known:
        there = f"its classes are {', '.join(known)}" if known else "it has no classes"
        text = f"{route.name} has no class {wanted!r}; {there}"
        raise RequestError("unknown_class", text, param=CLASS_HEADER)
    if request.classes is not None and wanted not in request.classes:
        allowed = ", ".join(each for each in known if each in request.classes) or "none"
        text = (
            f"the API key {request.caller.key!r} may not name the class {wanted!r}; of {route.name} it may: {allowed}"
        )
        raise RequestError("class_not_allowed", text, param=CLASS_HEADER)


def _resolve(choice: SamplingChoice, default: Sampling, seed: int) -> Sampling:
    def pick(asked: Any, fallback: Any) -> Any:
        return fallback if asked is None else asked

    return Sampling(
        temperature=pick(choice.temperature, default.temperature),
        top_p=pick(choice.top_p, default.top_p),
        top_k=pick(choice.top_k, default.top_k),
        min_p=pick(choice.min_p, default.min_p),
        repetition_penalty=pick(choice.repetition_penalty, default.repetition_penalty),
        presence_penalty=pick(choice.presence_penalty, default.presence_penalty),
        frequency_penalty=pick(choice.frequency_penalty, default.frequency_penalty),
        seed=seed,
    )
