"""Contradictions in how requests share queue, steps and KV memory, and in the classes that keys may name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from halogend.config.codes import Code
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document, ModelConfig

_ROUNDING = 1e-9


def check_policies(document: Document, places: Places) -> Iterator[Problem]:
    """Of every model, and of the keys that name their classes."""
    for index, model in enumerate(document.models):
        path = f"models[{index}]"
        yield from _watermarks(model, path, places)
        yield from _classes(model, path, places)
        yield from _pins(model, path, places)
        yield from _pool(model, path, places)
        yield from _lanes(model, path, places)
    yield from _classes_of_keys(document, places)


def _watermarks(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    marks = model.watermarks
    if marks is not None and marks.soft >= marks.hard:
        message = f"`watermarks.soft` {marks.soft:g} is not below `watermarks.hard` {marks.hard:g}"
        hint = "lower soft or raise hard, or write watermarks: off"
        yield places.problem(Code.WATERMARKS, f"{path}.watermarks.soft", message, hint)


def _classes(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    eviction = model.eviction
    if eviction.sessions and eviction.policy != "priority_lru":
        message = f"`eviction.sessions` has classes, and `eviction.policy` {eviction.policy} heeds none"
        hint = "write policy: priority_lru, or remove sessions"
        yield places.problem(Code.SESSION_CLASSES, f"{path}.eviction.sessions", message, hint)
    seen: dict[str, int] = {}
    for index, name in enumerate(eviction.class_names):
        earlier = seen.setdefault(name, index)
        if earlier != index:
            where = f"{path}.eviction.sessions[{index}].class"
            mark = places.mark(f"{path}.eviction.sessions[{earlier}].class")
            there = f" ({mark.words})" if mark else ""
            message = f"the class {name!r} stands twice in `eviction.sessions`{there}"
            yield places.problem(Code.SESSION_CLASSES, where, message, "keep one of them")


def _pins(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    """What is pinned counts as used: with all quotas taken, requests must still have room."""
    sessions = model.eviction.sessions
    pinned = sum(each.pin_quota for each in sessions)
    most = 1.0 if model.watermarks is None else model.watermarks.hard
    room = most - model.kv_block_pool.min_free_ratio
    if not pinned or pinned < room - _ROUNDING:
        return
    mark = f"`watermarks.hard` {most:g}" if model.watermarks is not None else "the whole pool"
    message = (
        f"the `pin_quota` of the classes sum to {pinned:g}, which with `kv_block_pool.min_free_ratio` "
        f"{model.kv_block_pool.min_free_ratio:g} leaves nothing of {mark} for requests"
    )
    last = max(index for index, each in enumerate(sessions) if each.pin_quota)
    hint = f"lower the quotas until they sum to less than {room:g}"
    yield places.problem(Code.PINS_LEAVE_NO_ROOM, f"{path}.eviction.sessions[{last}].pin_quota", message, hint)


def _pool(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    least, most = model.kv_block_pool.min_tokens, model.kv_block_pool.max_tokens
    if most is None:
        return
    if least is not None and least > most:
        message = f"`kv_block_pool.min_tokens` {least} is more than `kv_block_pool.max_tokens` {most}"
        yield places.problem(Code.POOL_BOUNDS, f"{path}.kv_block_pool.min_tokens", message, "lower it, or raise that")
    if holds_no_request(model):
        length = model.request_tokens(model.max_model_len or most)
        message = f"`kv_block_pool.max_tokens` {most} does not hold one request of {length} tokens"
        hint = "raise it, or lower max_model_len"
        yield places.problem(Code.POOL_BOUNDS, f"{path}.kv_block_pool.max_tokens", message, hint)


def holds_no_request(model: ModelConfig) -> bool:
    """Does the document alone say that the pool is too small for one full request?"""
    most, stated = model.kv_block_pool.max_tokens, model.max_model_len
    return most is not None and stated is not None and model.request_tokens(stated) > most


def _lanes(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    lane = model.long_prompt
    if lane is not None and lane.max_concurrent > model.max_batch:
        message = f"`long_prompt.max_concurrent` {lane.max_concurrent} is more than `max_batch` {model.max_batch}"
        hint = "lower it: what long prompts take, short ones wait for"
        yield places.problem(Code.LANES, f"{path}.long_prompt.max_concurrent", message, hint)


def _classes_of_keys(document: Document, places: Places) -> Iterator[Problem]:
    if places.kept_models is not None:
        return  # a model that was left out may have them
    known = tuple(dict.fromkeys(name for model in document.models for name in model.eviction.class_names))
    for index, key in enumerate(document.server.auth.keys if document.server.auth else ()):
        for position, name in enumerate(key.classes):
            if name in known:
                continue
            close = difflib.get_close_matches(name, known, n=1)
            there = f"; there are {', '.join(known)}" if known else ""
            message = f"the key {key.name!r} may name the class {name!r}, which no model has{there}"
            hint = f"did you mean {close[0]!r}?" if close else "add it to eviction.sessions of a model, or remove it"
            where = f"server.auth.keys[{index}].classes[{position}]"
            yield places.problem(Code.SESSION_CLASSES, where, message, hint)
