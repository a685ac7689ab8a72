"""The rules that need facts: files that are there, and what fits on the devices."""

from __future__ import annotations

from collections.abc import Iterator

from halogend.config.codes import Code, find
from halogend.config.facts import DeviceFacts, Facts, FileFact, KvFacts, ModelFacts, mapped_bytes
from halogend.config.kernel_rules import check_auto_kernels
from halogend.config.placement import by_device, host_of, kv_ratios, same_budget
from halogend.config.places import Places
from halogend.config.policy_rules import holds_no_request
from halogend.config.presence import check_presence
from halogend.config.problems import Problem
from halogend.config.schema import Document, ModelConfig
from halogend.config.values import BUILT_IN_TEMPLATES, mib_text

READABLE_FORMATS = ("gguf", "safetensors", "v2")


def check_facts(document: Document, places: Places, facts: Facts) -> Iterator[Problem]:
    """What the document asks for and the machine or the files cannot give."""
    for index, model in enumerate(document.models):
        path = f"models[{index}]"
        known = facts.models.get(model.name)
        if known is not None:
            yield from _checkpoint(model, known, path, places)
            yield from _template(model, known, path, places)
            yield from _limits(model, known, path, places)
    yield from file_problems(facts.files, places)
    yield from check_presence(document, facts, places)
    if facts.devices is not None:
        yield from check_auto_kernels(document, facts.devices, places)
        for device in facts.devices:
            yield from _device(document, device, facts, places)


def file_problems(files: tuple[FileFact, ...], places: Places) -> tuple[Problem, ...]:
    """Those of keys and certificates; warnings are none."""
    return tuple(
        places.problem(each.fault.code, each.path, each.fault.message, each.fault.hint)
        for each in files
        if not each.warning
    )


def _checkpoint(model: ModelConfig, known: ModelFacts, path: str, places: Places) -> Iterator[Problem]:
    found = known.format
    if found is not None and model.load_format not in {"auto", found}:
        message = f"`load_format` says {model.load_format}, and the first bytes of {model.model} say {found}"
        hint = "remove load_format, or name the right file"
        yield places.problem(Code.CHECKPOINT_FORMAT_CONTRADICTION, f"{path}.load_format", message, hint)
    elif known.fault is not None:
        code = find(known.fault.code)
        hint = known.fault.hint or (code.remedy if code else "")
        yield places.problem(known.fault.code, f"{path}.model", known.fault.message, hint)
    elif found is not None and found not in READABLE_FORMATS:
        what = f"{model.model} is of no known format ({found})"
        hint = f"this release reads {', '.join(READABLE_FORMATS)}"
        yield places.problem(Code.CHECKPOINT_UNKNOWN_FORMAT, f"{path}.model", what, hint)
    elif found not in {None, "v2"} and model.load.verify == "full":
        what = f"`load.verify` is full, and a {found} checkpoint has no digests to check"
        hint = "convert it to v2 (halogend convert), or write header"
        yield places.problem(Code.NO_DIGESTS, f"{path}.load.verify", what, hint)


def _template(model: ModelConfig, known: ModelFacts, path: str, places: Places) -> Iterator[Problem]:
    if known.template_fault is not None:
        fault = known.template_fault
        names = ", ".join(BUILT_IN_TEMPLATES)
        hint = fault.hint or f"mend the path; built-in names: {names}"
        yield places.problem(fault.code, f"{path}.chat_template", fault.message, hint)


def _limits(model: ModelConfig, known: ModelFacts, path: str, places: Places) -> Iterator[Problem]:
    limit = known.context_length
    if limit is None:
        return
    for name in ("max_model_len", "max_prompt_len", "max_decode_len"):
        value = getattr(model, name)
        if value is not None and value > limit:
            message = f"`{name}` {value} is over the model's own limit of {limit} tokens by {value - limit}"
            hint = f"lower it to {limit}, or remove the line"
            yield places.problem(Code.OVER_MODEL_LIMIT, f"{path}.{name}", message, hint)


def _device(document: Document, device: DeviceFacts, facts: Facts, places: Places) -> Iterator[Problem]:
    """Weights, then one full request of each model, in what the device may give."""
    everywhere = by_device(document, facts.devices)
    placed = everywhere.get(device.id, ())
    besides = _besides(document, device, facts)
    if not placed and not besides:
        return
    known = {index: facts.models.get(model.name) for index, model in placed}
    peers = [model for each in same_budget(device.id, facts.devices) for _, model in everywhere.get(each, ())]
    there = [about for model in peers if (about := facts.models.get(model.name)) is not None]
    mapped = mapped_bytes(file for each in there for file in each.mapped)
    fixed = mapped + sum((each.weight_bytes or 0) + each.working_bytes for each in there)
    fixed += sum(about.host_bytes for _, about in besides)
    room = usable_bytes(document, device)
    if fixed >= room:
        heaviest = max(placed, key=lambda each: _weights(known[each[0]]))[0] if placed else besides[0][0]
        message = f"the models on {device.id} need {mib_text(fixed)} for weights and working memory, it has"
        hint = "take a smaller model or a stronger quantisation, or raise the device's memory"
        path = f"models[{heaviest}].model"
        yield places.problem(Code.WEIGHTS_DO_NOT_FIT, path, f"{message} {mib_text(room)}", hint)
        return
    ratios = kv_ratios(document, facts.devices)
    for index, model in placed:
        about = known[index]
        pool = model.kv_cache_bytes or int(ratios.get((model.name, device.id), 0.0) * (room - fixed))
        if about is not None:
            yield from _full_request(model, about, pool, f"models[{index}]", places)


def _besides(document: Document, device: DeviceFacts, facts: Facts) -> list[tuple[int, ModelFacts]]:
    """Models on accelerators whose processes take memory of this device, which is the host: of a divided one they are
    counted once."""
    if device.id != host_of(facts.devices):
        return []
    own = {each.id for each in facts.devices or () if each.has_own_memory}
    placed = [each for name, there in by_device(document, facts.devices).items() if name in own for each in there]
    found = [(index, facts.models.get(model.name)) for index, model in placed]
    return [(index, about) for index, about in found if about is not None and about.host_bytes]


def _weights(known: ModelFacts | None) -> int:
    return 0 if known is None else (known.weight_bytes or 0) + mapped_bytes(known.mapped)


def allowance(document: Document, device: DeviceFacts) -> tuple[int, int]:
    """(memory, reserve) of a device in bytes: the document may allow less memory, never more than there is."""
    stated = next((each for each in document.devices if each.id in (device.id, *device.aliases)), None)
    memory = min(device.memory_bytes, stated.memory) if stated and stated.memory else device.memory_bytes
    reserve = stated.reserve if stated and stated.reserve is not None else device.reserve_bytes
    return memory, reserve


def usable_bytes(document: Document, device: DeviceFacts) -> int:
    """Memory less reserve less foreign use."""
    memory, reserve = allowance(document, device)
    return max(0, memory - reserve - device.foreign_bytes)


def pool_most_bytes(model: ModelConfig, kv: KvFacts, share_bytes: int) -> int:
    """What its pool may grow to, of a share of the device."""
    most = model.kv_block_pool.max_tokens
    return share_bytes if most is None else min(share_bytes, kv.pool_bytes(most))


def _full_request(
    model: ModelConfig, known: ModelFacts, share_bytes: int, path: str, places: Places
) -> Iterator[Problem]:
    """Below the hard watermark too: over it, a request of full length would be let in only while nothing runs."""
    if known.kv is None or known.context_length is None:
        return
    pool_bytes = pool_most_bytes(model, known.kv, share_bytes)
    hard = 1.0 if model.watermarks is None else model.watermarks.hard
    length = model.request_tokens(known.context_length)
    needed, room = known.kv.request_bytes(length), int(hard * pool_bytes)
    if needed > room and not holds_no_request(model):
        fits = known.kv.fitting_tokens(room, length)
        below = f", {mib_text(room)} of it below `watermarks.hard` {hard:g}" if needed <= pool_bytes else ""
        message = (
            f"one request of {length} tokens needs {mib_text(needed)} of KV memory, "
            f"the pool of {model.name!r} may have {mib_text(pool_bytes)}{below}"
        )
        lower = f"set max_model_len to at most {fits}, or " if fits else ""
        raised = "kv_cache_ratio or kv_cache_bytes" if pool_bytes == share_bytes else "kv_block_pool.max_tokens"
        yield places.problem(Code.REQUEST_DOES_NOT_FIT, f"{path}.max_model_len", message, f"{lower}raise {raised}")
    least = model.kv_block_pool.min_tokens
    if least is not None and known.kv.pool_bytes(least) > share_bytes:
        message = (
            f"`kv_block_pool.min_tokens` {least} takes {mib_text(known.kv.pool_bytes(least))}, "
            f"the pool of {model.name!r} may have {mib_text(share_bytes)}"
        )
        hint = "lower it, or raise kv_cache_ratio or kv_cache_bytes"
        yield places.problem(Code.POOL_BOUNDS, f"{path}.kv_block_pool.min_tokens", message, hint)
