"""The inference application: every public route in one list."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from halogend.api.chat import ChatEndpoint
from halogend.api.completions import CompletionEndpoint
from halogend.api.faults import application
from halogend.api.models import ModelsEndpoint
from halogend.api.probes import ProbesEndpoint
from halogend.api.services import Services


def inference_app(services: Services) -> Starlette:
    """An ASGI application. It starts nothing and needs no lifespan."""
    models = ModelsEndpoint(services)
    probes = ProbesEndpoint(services)
    return application(
        [
            Route("/v1/chat/completions", ChatEndpoint(services).create, methods=["POST"]),
            Route("/v1/completions", CompletionEndpoint(services).create, methods=["POST"]),
            Route("/v1/models", models.list, methods=["GET"]),
            Route("/v1/models/{name:path}", models.show, methods=["GET"]),
            Route("/livez", probes.live, methods=["GET"]),
            Route("/readyz", probes.ready, methods=["GET"]),
            Route("/healthz", probes.health, methods=["GET"]),
            Route("/metrics", probes.metrics, methods=["GET"]),
        ]
    )
