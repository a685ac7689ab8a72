"""GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from halogend.api.errors import model_not_found
from halogend.api.services import Services
from halogend.control.requests import ServedModel


class ModelsEndpoint:
    """Every model of the document, serving or not; `state` tells."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_view(model) for model in self._services.router.served()]})

    async def show(self, request: Request) -> Response:
        """By name or alias."""
        wanted = request.path_params["name"]
        models = self._services.router.served()
        for model in models:
            if wanted == model.name or wanted in model.aliases:
                return JSONResponse(_view(model))
        raise model_not_found(wanted, (model.name for model in models))


def _view(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "halogend",
        "aliases": list(model.aliases),
        "state": model.state,
        "generation": model.generation,
        "max_model_len": model.max_model_len,
        "max_prompt_len": model.max_prompt_len,
        "max_decode_len": model.max_decode_len,
        "capabilities": {"completions": True, "chat": model.has_chat_template},
    }
