"""What a document names, as it lies on disk now: headers, templates, fingerprints.

Read-only and blocking: run it in a thread. A file that cannot be used becomes a Fault in the facts,
never an exception, so that all problems of a document are told at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.formats import resolve_format
from halogend.checkpoint.geometry import Geometry, read_geometry
from halogend.checkpoint.gguf import GgufHeader, read_header
from halogend.checkpoint.inventory import check_tensors
from halogend.config.codes import Code
from halogend.config.facts import Facts, Fault, ModelFacts
from halogend.config.schema import Document, ModelConfig
from halogend.config.values import BUILT_IN_TEMPLATES
from halogend.control.machine import Machine, probe
from halogend.control.source import read_regular

WORKING_BYTES = 768 << 20  # torch, tokenizer and activations of one generation's two processes
_VALUE_BYTES = {"bf16": 2, "fp32": 4}
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
    built-in's name, or None for the checkpoint's own."""

    config: ModelConfig
    geometry: Geometry
    precision: str
    kv_dtype: str
    device: str
    template: str | None
    inputs: Inputs
    sampling: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Gathered:
    """`facts` for the rules; `models` holds those whose files can be used."""

    facts: Facts
    models: Mapping[str, Resolved]
    machine: Machine


def gather(document: Document, machine: Machine) -> Gathered:
    """Looks at every input of every model once."""
    looked = {model.name: _look(model, machine) for model in document.models}
    return Gathered(
        facts=Facts(models={name: facts for name, (facts, _) in looked.items()}, devices=machine.devices),
        models={name: resolved for name, (_, resolved) in looked.items() if resolved is not None},
        machine=machine,
    )


def gather_facts(document: Document) -> Facts:
    """For `halogend check`: this machine, as it is now."""
    return gather(document, probe()).facts


def _look(model: ModelConfig, machine: Machine) -> tuple[ModelFacts, Resolved | None]:
    template, template_print, template_fault = _template(model)
    try:
        found = resolve_format(model.model, model.load_format)
        header = read_header(model.model)
        geometry = read_geometry(header)
        check_tensors(header, geometry)
        fingerprint = _fingerprint(header)
    except CheckpointError as error:
        return ModelFacts(fault=Fault(error.code, error.message), template_fault=template_fault), None
    precision = _precision(model, machine)
    kv_dtype = precision if model.kv_cache_dtype == "auto" else model.kv_cache_dtype
    facts = ModelFacts(
        format=found,
        architecture=geometry.architecture,
        context_length=geometry.context_length,
        has_chat_template=template is not None or "tokenizer.chat_template" in header.metadata,
        template_fault=template_fault,
        weight_bytes=geometry.weight_bytes(_VALUE_BYTES[precision]),
        working_bytes=WORKING_BYTES,
        kv_bytes_per_token=geometry.kv_bytes_per_token(_VALUE_BYTES[kv_dtype]),
    )
    inputs = Inputs((model.model, fingerprint), template_print)
    device = _device(model, machine)
    if template_fault is not None or device is None:
        return facts, None
    own = _own_sampling(header)
    return facts, Resolved(model, geometry, precision, kv_dtype, device, template, inputs, own)


def _precision(model: ModelConfig, machine: Machine) -> str:
    if model.precision != "auto":
        return model.precision
    return "bf16" if machine.has_bf16 else "fp32"


def _device(model: ModelConfig, machine: Machine) -> str | None:
    wanted = model.device[0].id
    known = {name: each.id for each in machine.devices for name in (each.id, *each.aliases)}
    return machine.devices[0].id if wanted == "auto" else known.get(wanted)


def checkpoint_fingerprint(path: str) -> str:
    """As planned with, of the file that lies there now. Raises CheckpointError."""
    return _fingerprint(read_header(path))


def _fingerprint(header: GgufHeader) -> str:
    """Device, inode, size, mtime and the header's digest: a file replaced or rewritten differs."""
    try:
        stat = Path(header.path).stat()
    except OSError as error:
        raise CheckpointError(Code.CHECKPOINT_UNREADABLE, f"{header.path}: cannot be read: {error.strerror}") from error
    parts = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, header.digest)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


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


def _own_sampling(header: GgufHeader) -> dict[str, float]:
    """The checkpoint's own sampling defaults, where its metadata carries them."""
    keys = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
    found = {ours: header.metadata.get(f"general.sampling.{theirs}") for ours, theirs in keys.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
