"""Contradictions between devices, and between them and the models: those that need no facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from halogend.config.codes import Code
from halogend.config.placement import host_entries, is_processor, spares
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import DeviceConfig, Document, ModelConfig
from halogend.config.values import cores_of, cores_text, size_text


def check_devices(document: Document, places: Places) -> Iterator[Problem]:
    """Of the list of devices, and of each model's."""
    count = Counter(device.id for device in document.devices)
    for index, device in enumerate(document.devices):
        yield from _entry(device, count[device.id], f"devices[{index}]", places)
    yield from _cores(document, places)
    kept = spares(document)
    for index, model in enumerate(document.models):
        yield from _device_list(model, kept, f"models[{index}].device", places)
        if document.reload.atomic and model.reload.strategy == "rolling":
            message = "`strategy` rolling goes from replica to replica, and `reload.atomic` switches all at one moment"
            yield places.problem(Code.STRATEGY, f"models[{index}]", message, "take another strategy, or leave atomic")


def _entry(device: DeviceConfig, times: int, path: str, places: Places) -> Iterator[Problem]:
    if times > 1:
        message = f"the device {device.id} stands {times} times in `devices`"
        yield places.problem(Code.DEVICE_LIST, f"{path}.id", message, "keep one entry for each device")
    if device.memory is not None and device.reserve is not None and device.reserve >= device.memory:
        message = f"`reserve` {size_text(device.reserve)} leaves nothing of `memory` {size_text(device.memory)}"
        yield places.problem(Code.RESERVE_OVER_MEMORY, f"{path}.reserve", message, "lower it, or raise memory")
    if device.cores is not None and not is_processor(device.id):
        message = f"`cores` are processor cores, and {device.id} is no processor"
        yield places.problem(Code.DEVICE_CORES, f"{path}.cores", message, "remove the line")
    if isinstance(device.thermal, int) and is_processor(device.id):
        message = f"`thermal` {device.thermal} is a limit for accelerators, and {device.id} is a processor"
        yield places.problem(Code.DEVICE_THERMAL, f"{path}.thermal", message, "remove the line")


def _cores(document: Document, places: Places) -> Iterator[Problem]:
    """Each has its own; at most one takes those that are left."""
    entries = host_entries(document)
    places_of = {device.id: f"devices[{index}]" for index, device in reversed(list(enumerate(document.devices)))}
    owner: dict[int, str] = {}
    for device in entries:
        cores = cores_of(device.cores) if device.cores else ()
        taken = [core for core in cores if core in owner]
        if taken:
            message = f"`cores` {cores_text(taken)} of {device.id} are those of {owner[taken[0]]}"
            hint = "give each device cores of its own"
            yield places.problem(Code.DEVICE_CORES, f"{places_of[device.id]}.cores", message, hint)
        owner |= dict.fromkeys(set(cores) - set(taken), device.id)
    without = [device.id for device in entries if device.cores is None]
    if len(entries) > 1 and len(without) > 1:
        message = f"{' and '.join(without)} divide the host, and neither says which cores it has"
        hint = "write cores for each; one of them may go without and takes those that are left"
        yield places.problem(Code.DEVICE_CORES, f"{places_of[without[1]]}.id", message, hint)


def _device_list(model: ModelConfig, kept: frozenset[str], path: str, places: Places) -> Iterator[Problem]:
    ids = [device.id for device in model.device]
    doubled = [device for device, times in Counter(ids).items() if times > 1]
    if doubled:
        message = f"`device` names {doubled[0]} more than once"
        yield places.problem(Code.DEVICE_LIST, path, message, "name each device once")
    elif "auto" in ids and len(ids) > 1:
        message = "`device` has auto beside other devices"
        yield places.problem(Code.DEVICE_LIST, path, message, "name devices, or leave it at auto")
    elif len(ids) > 1 and model.exec_mode == "single":
        message = "several devices need exec_mode: data_parallel"
        yield places.problem(Code.DEVICE_LIST, path, message, f"set it, or name one device, such as {ids[0]}")
    elif "auto" in ids and model.exec_mode == "data_parallel":
        message = "`exec_mode` data_parallel needs to be told its devices, and `device` is auto"
        yield places.problem(Code.DEVICE_LIST, path, message, "name them; each gets a copy of the model")
    elif model.exec_mode == "data_parallel" and len({is_processor(each) for each in ids}) > 1:
        message = "`device` names processors beside accelerators, and replicas hold weights in one way"
        yield places.problem(Code.DEVICE_LIST, path, message, "name devices of one kind, or make it two models")
    if model.exec_mode == "data_parallel" and model.reload.strategy == "shrink":
        message = "`strategy` shrink gives way in one pool, and `exec_mode` data_parallel has one on each device"
        hint = "take overlap or replace, or one device"
        yield places.problem(Code.STRATEGY, path, message, hint)
    if model.exec_mode == "single" and model.reload.strategy == "rolling":
        message = "`strategy` rolling goes from replica to replica, and `exec_mode` single has one"
        yield places.problem(Code.STRATEGY, path, message, "take auto, or exec_mode: data_parallel")
    for spare in [each for each in ids if each in kept]:
        message = f"`device` names {spare}, which is kept spare"
        yield places.problem(Code.DEVICE_SPARE, path, message, "name another device, or remove its spare")
