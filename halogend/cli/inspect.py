"""`halogend inspect`: what is in a checkpoint, from its headers alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from halogend.cli import arguments
from halogend.cli.show import mib

if TYPE_CHECKING:
    from halogend.checkpoint.checkpoint import Checkpoint
    from halogend.checkpoint.v2.reader import V2File


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "inspect",
        help="what is in a checkpoint",
        description="Prints the model, its weights and where they lie, and what a v2 checkpoint says of its source,"
        " its text and the tensor-parallel sizes it serves. Reads headers alone. Exit 0, or 1 for what cannot be used.",
    )
    parser.add_argument("path", type=arguments.path, metavar="PATH", help="a checkpoint of any format")
    parser.add_argument(
        "--text", metavar="NAME", help="print this text file of a v2 checkpoint, as it lies, and no more"
    )
    parser.add_argument("--template", action="store_true", help="print the checkpoint's chat template and no more")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from halogend.checkpoint.checkpoint import open_checkpoint
    from halogend.checkpoint.errors import CheckpointError

    try:
        checkpoint = open_checkpoint(args.path)
        if args.text is not None:
            return _print_text(checkpoint, args.text)
        template = _template(checkpoint)
    except CheckpointError as error:
        print(f"halogend inspect: {error}", file=sys.stderr)
        return 1
    if args.template:
        return _print_template(checkpoint, template)
    found = _described(checkpoint) | {"chat_template": template}
    if args.json:
        print(json.dumps(found))
        return 0
    for line in _lines(found):  # a file's own words may hold what moves a terminal
        print("".join(each if each.isprintable() else "?" for each in line))
    return 0


def _print_text(checkpoint: Checkpoint, name: str) -> int:
    names = checkpoint.v2.text_names if checkpoint.v2 is not None else ()
    if checkpoint.v2 is None or name not in names:
        has = f"it has {', '.join(names)}" if names else "it holds none, being no v2 checkpoint"
        print(f"halogend inspect: {checkpoint.path}: has no text file {name!r}; {has}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(checkpoint.v2.text(name))
    return 0


def _template(checkpoint: Checkpoint) -> str | None:
    """As Jinja source. Raises CheckpointError."""
    from halogend.checkpoint import gguf_keys
    from halogend.checkpoint.gguf import GgufHeader
    from halogend.checkpoint.own_text import TEMPLATE_KEY, text_of
    from halogend.checkpoint.tokenizer_files import own_template

    text = text_of(checkpoint)
    if isinstance(text, GgufHeader):
        return gguf_keys.text(text, TEMPLATE_KEY) if text.has(TEMPLATE_KEY) else None
    return own_template(text)


def _print_template(checkpoint: Checkpoint, template: str | None) -> int:
    if template is None:
        print(f"halogend inspect: {checkpoint.path}: has no chat template", file=sys.stderr)
        return 1
    print(template)
    return 0


def _described(checkpoint: Checkpoint) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "quantisation": checkpoint.quantisation,
        "files": [str(path) for path in checkpoint.files],
        "model": msgspec.to_builtins(checkpoint.geometry),
        "weights": {name: _place(weight) for name, weight in checkpoint.weights.items()},
    }
    if checkpoint.v2 is not None:
        found |= _described_v2(checkpoint.v2)
    return found


def _place(weight: Any) -> dict[str, Any]:
    """Of the first piece where a weight has several."""
    first = weight.pieces[0]
    tensor = first.encoded.tensors[0]
    kind = type(first.encoded).__name__.lower()
    return {
        "shape": [weight.rows, weight.columns],
        "dtype": getattr(tensor.type, "label", tensor.type.name),
        "stored": kind,
        "bytes": weight.nbytes,
        "file": tensor.file,
        "offset": tensor.offset,
    }


def _described_v2(file: V2File) -> dict[str, Any]:
    import msgspec

    from halogend.checkpoint.v2.shards import sizes

    metadata = file.metadata
    entries = [
        {
            "name": entry.name,
            "dtype": entry.dtype.label,
            "shape": list(entry.shape),
            "layout": entry.layout,
            "block": entry.block,
            "offset": entry.offset,
            "bytes": entry.nbytes,
            "part": entry.part,
            "shard": {"axis": entry.shard.axis, "unit": entry.shard.unit},
            "sha256": entry.sha256,
        }
        for entry in metadata.entries
    ]
    return {
        "version": file.header.version,
        "producer": metadata.producer,
        "source": msgspec.to_builtins(metadata.source),
        "dropped": list(metadata.dropped),
        "text": {"kind": metadata.text, "files": list(file.text_names)},
        "tensor_parallel_sizes": list(sizes(metadata.entries)),
        "chunks": [len(digests) for digests in metadata.chunks],
        "entries": entries,
    }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    model, weights = found["model"], found["weights"]
    total = sum(weight["bytes"] for weight in weights.values())
    windows = sum(window is not None for window in model["windows"])
    experts = f", {model['experts']['count']} experts" if model["experts"] else ""
    made = f", version {found['version']} by {found['producer']}" if "version" in found else ""
    yield f"{found['path']}"
    yield f"  format     {found['format']}{made}, {len(found['files'])} file(s)"
    yield (
        f"  model      {model['architecture']}: {model['layers']} layers ({windows} with a window), hidden"
        f" {model['hidden']}, {model['heads']} heads over {model['kv_heads']} of {model['head_dim']}, feed-forward"
        f" {model['ffn']}{experts}"
    )
    yield f"  context    {model['context_length']}, vocabulary {model['vocab']}"
    template = found["chat_template"]
    yield f"  template   {'none' if template is None else f'{len(template)} characters (--template prints it)'}"
    yield f"  weights    {found['quantisation']}: {len(weights)} in {mib(total)}"
    if "entries" in found:
        yield from _v2_lines(found)
    else:
        yield from _weight_lines(weights)


def _v2_lines(found: dict[str, Any]) -> Iterator[str]:
    source = found["source"]
    yield f"  source     {source['format']}, {source['quantisation']}"
    for file in source["files"]:
        yield f"             {file['name']}, {file['bytes']} bytes, sha256 {file['sha256']}"
    yield f"  text       {found['text']['kind']}: {', '.join(found['text']['files'])} (--text NAME prints one)"
    yield f"  ranks      tensor-parallel sizes {', '.join(map(str, found['tensor_parallel_sizes']))}"
    if found["dropped"]:
        yield f"  dropped    {', '.join(found['dropped'])}"
    place = f"{'PART':>4} {'OFFSET':>14} {'BYTES':>13}"
    yield f"{'NAME':<32} {'SHAPE':<18} {'DTYPE':<8} {'LAYOUT':<11} {'SHARD':<9} {place}"
    for entry in found["entries"]:
        shape, axis = "x".join(map(str, entry["shape"])), entry["shard"]["axis"]
        shard = "whole" if axis is None else f"{('rows', 'columns')[axis]}/{entry['shard']['unit']}"
        place = f"{entry['part']:>4} {entry['offset']:>14} {entry['bytes']:>13}"
        yield f"{entry['name']:<32} {shape:<18} {entry['dtype']:<8} {entry['layout']:<11} {shard:<9} {place}"


def _weight_lines(weights: dict[str, Any]) -> Iterator[str]:
    yield f"{'NAME':<32} {'SHAPE':<18} {'DTYPE':<8} {'STORED':<11} {'FILE':>4} {'OFFSET':>14} {'BYTES':>13}"
    for name, weight in weights.items():
        shape = "x".join(map(str, weight["shape"]))
        place = f"{weight['file']:>4} {weight['offset']:>14} {weight['bytes']:>13}"
        yield f"{name:<32} {shape:<18} {weight['dtype']:<8} {weight['stored']:<11} {place}"
