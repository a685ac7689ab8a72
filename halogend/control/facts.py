"""What a document names, as it lies on disk now: headers, templates, fingerprints.

Read-only and blocking: run it in a thread. A file that cannot be used becomes a Fault in the facts,
never an exception, so that all problems of a document are told at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from halogend.checkpoint.adoption import TAKEN
from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.files import stat_of
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.kv_groups import group_layers
from halogend.checkpoint.own_text import has_template, sampling_of, text_of
from halogend.checkpoint.sizes import VALUE_BYTES, kv_position_bytes
from halogend.checkpoint.tokenizer_files import text_files
from halogend.config import placement
from halogend.config.codes import Code
from halogend.config.facts import BLOCK_TOKENS, DeviceFacts, Facts, Fault, KvFacts, ModelFacts
from halogend.config.schema import Document, ModelConfig
from halogend.config.targets import Assumed
from halogend.config.values import BUILT_IN_TEMPLATES
from halogend.control.access import Access, look
from halogend.control.load_plan import LoadPlan, Ways, plan_load
from halogend.control.machine import Machine, probe
from halogend.control.source_files import read_regular
from halogend.control.working import PRODUCTS_BYTES, Split, Work, working_bytes, working_on_device

AUTO_STEP_TOKENS = 256  # what an engine computes of one request in a step when prefill_chunk is auto
ACCELERATOR_STEP_TOKENS = 2048  # the same on an accelerator, whose products want more rows to be at their best
_MOST_LOAD_THREADS = 4
_MAX_TEMPLATE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Inputs:
    """Fingerprints of the files a model's entry names: (path, fingerprint). `checkpoint` decides
    about a generation, `template` is live."""

    checkpoint: tuple[str, str]
    template: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Resolved:
    """One model's entry with everything `auto` made concrete. `template` is Jinja source, a
    built-in's name, or None for the checkpoint's own. `host_bytes` it takes of the host besides, where its device has
    memory of its own. A replica goes on each of `devices`; what holds for all is
    reckoned for the first."""

    config: ModelConfig
    geometry: Geometry
    load: LoadPlan
    working_bytes: int
    kv: KvFacts
    compute_dtype: str
    kv_dtype: str
    devices: tuple[str, ...]
    template: str | None
    inputs: Inputs
    sampling: Mapping[str, float]
    host_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Gathered:
    """`facts` for the rules; `models` holds those whose files can be used; `access` what the files of keys
    and certificates hold; `machine` is as the document divides it."""

    facts: Facts
    models: Mapping[str, Resolved]
    machine: Machine
    access: Access


def gather(document: Document, machine: Machine, in_force: Access | None = None) -> Gathered:
    """Looks at every input of every model once. `in_force` are the keys and certificates that are used now."""
    whole, machine = machine, machine.as_divided(document)
    devices_of = {model.name: placement.devices_of(model, document, machine.devices) for model in document.models}
    looked = {model.name: _look(model, devices_of[model.name], machine) for model in document.models}
    access, files = look(document.server, in_force=in_force)
    return Gathered(
        facts=Facts(
            models={name: facts for name, (facts, _) in looked.items()},
            files=files,
            devices=machine.devices,
            host=whole.host,
        ),
        access=access,
        models={name: resolved for name, (_, resolved) in looked.items() if resolved is not None},
        machine=machine,
    )


def gather_facts(document: Document, assumed: Assumed | None = None) -> Facts:
    """For `halogend check`: this machine as it is now, or as if it were the `assumed` one."""
    machine = probe()
    if assumed is not None:
        machine = replace(machine, devices=assumed.devices(machine.host))
    return gather(document, machine).facts


def _look(model: ModelConfig, devices: tuple[str, ...], machine: Machine) -> tuple[ModelFacts, Resolved | None]:
    template, template_print, template_fault = _template(model)
    try:
        checkpoint = open_checkpoint(model.model, model.load_format)
        ways = _ways(model, checkpoint, machine, devices[0])
        load, text = plan_load(checkpoint, ways), text_of(checkpoint)
        with_template = has_template(text) or template is not None
        own = sampling_of(text, _stated_sampling(model))
        fingerprint = _fingerprint(checkpoint)
    except CheckpointError as error:
        return ModelFacts(fault=Fault(error.code, error.message), template_fault=template_fault), None
    geometry, compute = checkpoint.geometry, ways.compute
    kv_dtype = compute if model.kv_cache_dtype == "auto" else model.kv_cache_dtype
    kv = _kv(geometry, kv_dtype, _step_tokens(model, ways))
    work = Work(kv_dtype, kv.step_tokens, with_template, _packed_in(model, ways))
    working = _working(geometry, model, work, machine.device(devices[0]))
    facts = ModelFacts(
        format=checkpoint.format,
        architecture=geometry.architecture,
        context_length=geometry.context_length,
        has_chat_template=with_template,
        template_fault=template_fault,
        weight_bytes=load.own_bytes,
        working_bytes=working.device_bytes,
        host_bytes=working.host_bytes,
        mapped=load.mapped,
        kv=kv,
    )
    if template_fault is not None or not {*devices} <= {each.id for each in machine.devices}:
        return facts, None
    inputs = Inputs((model.model, fingerprint), template_print)
    return facts, Resolved(
        config=model,
        geometry=geometry,
        load=load,
        working_bytes=working.device_bytes,
        host_bytes=working.host_bytes,
        kv=kv,
        compute_dtype=compute,
        kv_dtype=kv_dtype,
        devices=devices,
        template=template,
        inputs=inputs,
        sampling=own,
    )


def _working(geometry: Geometry, model: ModelConfig, work: Work, device: DeviceFacts | None) -> Split:
    if device is None or not device.is_accelerator:
        return Split(working_bytes(geometry, model, work), 0)
    found = working_on_device(geometry, model, work)
    return found if device.has_own_memory else Split(found.device_bytes + found.host_bytes, 0)


def _ways(model: ModelConfig, checkpoint: Checkpoint, machine: Machine, device: str) -> Ways:
    """What is quantised in a v2 checkpoint was made to be served so, eight-bit floats by accelerators alone. Of an
    accelerator's weights nothing stays mapped: they are copied there; nor of those that its kernels read here."""
    best, there = machine.compute_of(device), machine.device(device)
    own = checkpoint.v2.metadata.quantisation if checkpoint.v2 is not None else ""
    precision: str = model.precision
    on_accelerator = there is not None and there.is_accelerator
    if precision == "auto":
        served = own in TAKEN and (own != "fp8" or on_accelerator)
        precision = own if served else best
    compute = precision if precision in VALUE_BYTES else best
    mapped = 0.0 if on_accelerator or model.kernels.backend == "triton" else model.mmap_threshold
    return Ways(precision, compute, _load_threads(model, machine.cores_of(device)), mapped, on_accelerator)


def _load_threads(model: ModelConfig, cores: int) -> int:
    """As an engine chooses them on a device of so many cores."""
    if model.load_thread_num != "auto":
        return model.load_thread_num
    return 1 if cores <= 2 else min(_MOST_LOAD_THREADS, cores // 2)


def _packed_in(model: ModelConfig, ways: Ways) -> str | None:
    """What a processor's kernels keep of products is in; None where they keep nothing."""
    is_packed = ways.precision in PRODUCTS_BYTES and not ways.on_accelerator and model.kernels.backend != "triton"
    return ways.compute if is_packed else None


def _step_tokens(model: ModelConfig, ways: Ways) -> int:
    if model.prefill_chunk != "auto":
        return model.prefill_chunk
    return ACCELERATOR_STEP_TOKENS if ways.on_accelerator else AUTO_STEP_TOKENS


def _kv(geometry: Geometry, dtype: str, step_tokens: int) -> KvFacts:
    groups = group_layers(geometry.windows)
    position_bytes = kv_position_bytes(geometry.kv_heads, geometry.head_dim, dtype)
    return KvFacts(
        block_bytes=groups.layers_per_table * position_bytes * BLOCK_TOKENS,
        windows=groups.windows,
        step_tokens=step_tokens,
    )


def checkpoint_fingerprint(path: str) -> str:
    """As planned with, of the files that lie there now. Raises CheckpointError."""
    return _fingerprint(open_checkpoint(path))


def _fingerprint(checkpoint: Checkpoint) -> str:
    """Device, inode, size and mtime of each file, and the headers' digest: one replaced or rewritten
    differs."""
    files = checkpoint.files
    if checkpoint.format == "safetensors":
        files = (*files, *text_files(checkpoint.path))
    parts = [(str(path), *_status(path)) for path in files]
    return hashlib.sha256(repr((parts, checkpoint.digest)).encode()).hexdigest()


def _status(path: Path) -> tuple[int, ...]:
    stat = stat_of(path)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _template(model: ModelConfig) -> tuple[str | None, tuple[str, str] | None, Fault | None]:
    """(source, fingerprint, fault) of `chat_template`."""
    if model.chat_template is None or model.chat_template in BUILT_IN_TEMPLATES:
        return model.chat_template, None, None
    path = Path(model.chat_template)
    try:
        data = read_regular(path, _MAX_TEMPLATE_BYTES + 1)
        source = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"chat_template {os.fspath(path)!r} cannot be read: {reason}"
        return None, None, Fault(Code.TEMPLATE_UNREADABLE, message, "a readable file or a built-in name: chatml")
    if len(data) > _MAX_TEMPLATE_BYTES:
        message = f"chat_template {os.fspath(path)!r} is larger than {_MAX_TEMPLATE_BYTES >> 20} MiB"
        return None, None, Fault(Code.TEMPLATE_UNREADABLE, message, "a chat template is a few KiB; name that file")
    return source, (model.chat_template, hashlib.sha256(data).hexdigest()), None


def _stated_sampling(model: ModelConfig) -> set[str]:
    """The defaults that nobody asks the checkpoint for."""
    stated = model.sampling.model_fields_set
    return {name for name in type(model.sampling).model_fields if getattr(model.sampling, name) is not None} & stated
