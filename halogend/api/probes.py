"""What probes and scrapers ask: /livez, /readyz, /healthz, /metrics. None waits for an engine."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from halogend.api.errors import model_not_found
from halogend.api.services import Services
from halogend.obs.exposition import CONTENT_TYPE


class ProbesEndpoint:
    """200 or 503, with a body for people."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def live(self, _request: Request) -> Response:
        """Only that the daemon's loop turns: for liveness probes, which restart the whole."""
        return JSONResponse({"alive": True})

    async def ready(self, request: Request) -> Response:
        """`?model=` asks for one; an unknown one is a 404."""
        wanted = request.query_params.get("model")
        models = self._services.router.served()
        if wanted is not None and not any(wanted == m.name or wanted in m.aliases for m in models):
            raise model_not_found(wanted, (model.name for model in models))
        ready = self._services.router.ready(wanted)
        view = {"ready": ready, "models": {model.name: model.state for model in models}}
        return JSONResponse(view, status_code=200 if ready else 503)

    async def health(self, _request: Request) -> Response:
        health = self._services.router.health()
        return JSONResponse(health, status_code=200 if health["healthy"] else 503)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._services.metrics.render(), headers={"content-type": CONTENT_TYPE})
