"""Contradictions: between fields, and between the document and what is on the machine.

Pure: facts come in as values. Each rule is a function that yields problems; all of them run, so one
reading shows everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from halogend.config.codes import Code
from halogend.config.device_rules import check_devices
from halogend.config.facts import Facts
from halogend.config.fit import check_facts
from halogend.config.kernel_rules import check_kernels
from halogend.config.listener_rules import check_listeners
from halogend.config.placement import by_device
from halogend.config.places import ParseResult, Places
from halogend.config.policy_rules import check_policies
from halogend.config.problems import Problem, in_order
from halogend.config.schema import Document, ModelConfig
from halogend.config.values import size_text

MOST_TOLD = 200
_ROUNDING = 1e-9


def check(parsed: ParseResult, facts: Facts | None = None) -> tuple[Problem, ...]:
    """Every problem of a document, the parser's included, in the order of the file; () means valid.

    Without `facts` only what the document says by itself is judged. Facts are those of `parsed.partial`.
    """
    problems = list(parsed.problems)
    if parsed.partial is not None:
        problems += contradictions(parsed.partial, parsed.places)
        if facts is not None:
            problems += check_facts(parsed.partial, parsed.places, facts)
    ordered = in_order(tuple(problems))
    if len(ordered) <= MOST_TOLD:
        return ordered
    rest = f"{len(ordered) - MOST_TOLD} more problems are not shown"
    return (*ordered[:MOST_TOLD], Problem(Code.MORE_PROBLEMS, rest, "mend these first", parsed.places.file))


def contradictions(document: Document, places: Places) -> Iterator[Problem]:
    """What cannot be true at once inside the document."""
    yield from _emptiness(document, places)
    yield from check_listeners(document, places)
    yield from check_devices(document, places)
    yield from _names(document, places)
    yield from _aliases(document, places)
    yield from _kv_shares(document, places)
    yield from check_policies(document, places)
    yield from check_kernels(document, places)
    for index, model in enumerate(document.models):
        yield from _one_model(model, f"models[{index}]", places)


def _emptiness(document: Document, places: Places) -> Iterator[Problem]:
    if not document.models and not document.allow_empty:
        hint = "add a model, or write allow_empty: true if serving nothing is meant"
        yield places.problem(Code.NO_MODELS, "models", "the document holds no model", hint)


def _names(document: Document, places: Places) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, model in enumerate(document.models):
        earlier = first.setdefault(model.name, index)
        if earlier == index:
            continue
        mark = places.mark(f"models[{earlier}].name")
        where = f" ({mark.words})" if mark else ""
        message = f"the name {model.name!r} is already another model's{where}"
        hint = "rename one; models that share traffic share an entry in aliases"
        yield places.problem(Code.DUPLICATE_NAME, f"models[{index}].name", message, hint)


def _aliases(document: Document, places: Places) -> Iterator[Problem]:
    names = {model.name for model in document.models}
    weights: Counter[str] = Counter()
    for index, model in enumerate(document.models):
        for position, alias in enumerate(model.aliases):
            path = f"models[{index}].aliases[{position}]"
            weights[alias] += model.weight > 0
            if alias in model.aliases[:position]:
                message = f"the alias {alias!r} stands twice in `aliases`"
                yield places.problem(Code.ALIAS_CLASH, path, message, "keep one of them")
            elif alias == model.name:
                message = f"the alias {alias!r} is the model's own name"
                yield places.problem(Code.ALIAS_CLASH, path, message, "remove it")
            elif alias in names:
                message = f"the alias {alias!r} is the name of another model"
                yield places.problem(Code.ALIAS_CLASH, path, message, "rename the alias or that model")
        if model.path_alias and model.path_name in names - {model.name}:
            message = f"the last part of the path, {model.path_name!r}, is the name of another model"
            hint = "remove path_alias, or rename that model"
            yield places.problem(Code.ALIAS_CLASH, f"models[{index}].path_alias", message, hint)
    for index, model in enumerate(document.models):
        for dead in [alias for alias in model.aliases if not weights[alias]]:
            message = f"no model takes traffic for the alias {dead!r}: `weight` is 0"
            hint = "give one of its models a weight above 0, or remove the alias"
            yield places.problem(Code.ALIAS_WITHOUT_WEIGHT, f"models[{index}].weight", message, hint)


def _kv_shares(document: Document, places: Places) -> Iterator[Problem]:
    sizes = {device.id: device for device in document.devices}
    for device, placed in by_device(document).items():
        taken = 0.0
        asked_bytes = 0
        for index, model in placed:
            taken += model.kv_cache_ratio or 0.0
            asked_bytes += model.kv_cache_bytes or 0
            if model.kv_cache_ratio and taken > 1 + _ROUNDING:
                message = f"the kv_cache_ratio of the models on {device} sum to {taken:g}, over 1"
                yield places.problem(
                    Code.KV_RATIO_OVER_ONE, f"models[{index}].kv_cache_ratio", message, "lower the ratios"
                )
        for index, model in placed:
            if model.kv_cache_ratio is None and model.kv_cache_bytes is None and taken >= 1 - _ROUNDING:
                message = f"the other models' kv_cache_ratio leave nothing of {device} for {model.name!r}"
                hint = "lower the others' ratios, or give this model kv_cache_bytes"
                yield places.problem(Code.KV_RATIO_OVER_ONE, f"models[{index}]", message, hint)
        limit = sizes.get(device)
        room = max(0, limit.memory - (limit.reserve or 0)) if limit and limit.memory else None
        if room is not None and asked_bytes > room:
            last = max(index for index, model in placed if model.kv_cache_bytes)
            asked = size_text(asked_bytes)
            message = f"the kv_cache_bytes of the models on {device} sum to {asked}, over its {size_text(room)}"
            path = f"models[{last}].kv_cache_bytes"
            yield places.problem(Code.KV_OVER_MEMORY, path, message, "lower them, or raise memory")


def _one_model(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    if model.kv_cache_ratio is not None and model.kv_cache_bytes is not None:
        message = "`kv_cache_ratio` and `kv_cache_bytes` are both set"
        yield places.problem(Code.TWO_SPELLINGS, f"{path}.kv_cache_bytes", message, "keep one of them")
    yield from _timeouts(model, path, places)
    if model.probation is not None and model.reload.strategy in ("replace", "rolling"):
        message = f"`probation` needs the generation before, and `strategy` {model.reload.strategy} ends it first"
        hint = "take another strategy, or write probation: off"
        yield places.problem(Code.PROBATION_WITHOUT_OLD, f"{path}.probation", message, hint)
    yield from _lengths(model, path, places)


def _timeouts(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    queue_ms = model.queue_timeout_ms
    if 0 < model.request_timeout_ms <= queue_ms:
        message = (
            f"`request_timeout_ms` {model.request_timeout_ms} is not longer than "
            f"`queue_timeout_ms` {queue_ms}, so a request could end while it may still wait"
        )
        hint = "make it longer, or 0 for no limit"
        yield places.problem(Code.TIMEOUTS_CONTRADICT, f"{path}.request_timeout_ms", message, hint)
    drain_s = model.reload.drain_timeout_s
    if model.reload.strategy == "replace" and drain_s != "auto" and drain_s * 1000 > queue_ms:
        message = (
            f"`strategy: replace` lets requests wait, at most `queue_timeout_ms` {queue_ms}, while the old generation "
            f"drains for up to `drain_timeout_s` {drain_s:g}"
        )
        hint = "raise queue_timeout_ms to the drain and the load together, lower drain_timeout_s, or set it to auto"
        yield places.problem(Code.TIMEOUTS_CONTRADICT, f"{path}.reload.drain_timeout_s", message, hint)


def _lengths(model: ModelConfig, path: str, places: Places) -> Iterator[Problem]:
    whole, prompt, answer = model.max_model_len, model.max_prompt_len, model.max_decode_len
    if whole is None:
        return
    hint = "max_model_len bounds prompt and answer together: lower the parts, or raise it"
    if prompt is not None and prompt + (answer or 1) > whole:
        parts = f"`max_prompt_len` {prompt} and " + (f"`max_decode_len` {answer}" if answer else "one token of answer")
        message = f"{parts} are more than `max_model_len` {whole}"
        yield places.problem(Code.LENGTHS_CONTRADICT, f"{path}.max_prompt_len", message, hint)
    elif answer is not None and answer >= whole:
        message = f"`max_decode_len` {answer} leaves no room for a prompt in `max_model_len` {whole}"
        yield places.problem(Code.LENGTHS_CONTRADICT, f"{path}.max_decode_len", message, hint)
