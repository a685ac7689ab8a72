"""A file for each rule of the v2 format that breaks it, and nothing else: `CASES[rule]` makes them in a folder.

Each is one edit of a sound file, with the digests around the edit made anew, so that only the rule
itself can find it. The rules of the data (V2-39 to V2-41) open, and are found by `verify`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.v2_files import copy_v2, edited, encoded_header, read_parts, tiny_geometry, write_v2

Case = Callable[[Path], Path]  # from a folder to the file to open
PART_BYTES = 100_000
OF_THE_DATA = frozenset({"V2-39", "V2-40", "V2-41"})


def _single(folder: Path) -> Path:
    return copy_v2(folder / "m.hgn2")


def _manifest(folder: Path) -> Path:
    return write_v2(folder / "m.hgn2", part_bytes=PART_BYTES)


def _part(folder: Path, number: int) -> Path:
    return sorted(folder.glob("m-*.hgn2"))[number - 1]


def _raw(edit: Callable[[bytearray], object]) -> Case:
    """Of the bytes as they lie."""

    def make(folder: Path) -> Path:
        path = _single(folder)
        raw = bytearray(path.read_bytes())
        edit(raw)
        path.write_bytes(raw)
        return path

    return make


def _head(**fields: Any) -> Case:
    return lambda folder: edited(_single(folder), header=fields)


def _document(edit: Callable[[dict[str, Any]], object]) -> Case:
    return lambda folder: edited(_single(folder), metadata=edit)


def _tensor(number: int, **changes: Any) -> Case:
    return _document(lambda document: document["tensors"][number].update(changes))


def _longer(raw: bytearray) -> None:
    raw += b"\0"


def _shorter(raw: bytearray) -> None:
    del raw[-1]


def _dirty_gap(raw: bytearray) -> None:
    raw[read_parts(bytes(raw))[0]["start"] - 1] = 1


def _key_twice(folder: Path) -> Path:
    path = _single(folder)
    raw = read_parts(path.read_bytes())[1]
    return edited(path, metadata=raw[:-1] + b',"producer":"other"}')


def _behind(folder: Path) -> Path:
    """A page that no entry owns, and a digest of its chunk."""
    return edited(_single(folder), data=lambda content: content.extend(bytes(4096)))


def _past_the_end(document: dict[str, Any]) -> None:
    """The last entry is longer than the file."""
    last = document["tensors"][-1]
    last["shape"], last["length"] = [last["length"] + 1], last["length"] + 1


def _surplus(folder: Path) -> Path:
    path = write_v2(folder / "m.hgn2", model=tiny_geometry(qk_norm=True))
    return edited(path, metadata=lambda document: document["model"].update(qk_norm=False))


def _renamed(document: dict[str, Any]) -> None:
    document["tensors"][-1]["name"] = "text/../../etc/passwd"


def _no_tokenizer(document: dict[str, Any]) -> None:
    (entry,) = (each for each in document["tensors"] if each["name"] == "text/tokenizer.json")
    entry["name"] = "text/added_tokens.json"


def _half_vector(document: dict[str, Any]) -> None:
    (entry,) = (each for each in document["tensors"] if each["name"] == "output_norm")
    entry["dtype"], entry["length"] = "F16", entry["length"] // 2


def _part_alone(folder: Path) -> Path:
    _manifest(folder)
    return _part(folder, 2)


def _manifest_with_data(folder: Path) -> Path:
    return edited(_manifest(folder), data=lambda content: content.extend(bytes(4096)), header={"flags": 1})


def _part_missing(folder: Path) -> Path:
    path = _manifest(folder)
    _part(folder, 2).unlink()
    return path


def _part_of_another_place(folder: Path) -> Path:
    path = _manifest(folder)
    first, second = _part(folder, 1), _part(folder, 2)
    second.write_bytes(first.read_bytes())
    return path


def _part_of_another_set(folder: Path) -> Path:
    path = _manifest(folder)
    (folder / "other").mkdir()
    write_v2(folder / "other/m.hgn2", part_bytes=PART_BYTES, seed=1)
    _part(folder, 2).write_bytes(_part(folder / "other", 2).read_bytes())
    return path


def _other_chunk(document: dict[str, Any]) -> None:
    document["chunks"]["parts"] = [["00" * 32]]


def _other_digest(document: dict[str, Any]) -> None:
    document["tensors"][0]["sha256"] = "00" * 32


def _full_gap(folder: Path) -> Path:
    """What lies behind a tensor is a digest's too, so that nothing but the zeros themselves is wrong."""
    path = _single(folder)
    fields, raw, content = read_parts(path.read_bytes())
    document, data = json.loads(raw), bytearray(content)
    first = document["tensors"][0]
    data[first["offset"] + first["length"] - fields["start"]] = 7
    document["chunks"]["parts"] = [[hashlib.sha256(data).hexdigest()]]
    raw = json.dumps(document).encode()
    fields |= {"length": len(raw), "sha256": hashlib.sha256(raw).digest()}
    path.write_bytes(encoded_header(fields) + raw.ljust(fields["start"] - 4096, b"\0") + data)
    return path


CASES: Mapping[str, Case] = {
    "V2-01": _raw(lambda raw: raw.__setitem__(slice(0, 8), b"HALOGEN3")),
    "V2-02": _raw(lambda raw: raw.__delitem__(slice(4095, None))),
    "V2-03": _raw(lambda raw: raw.__setitem__(40, raw[40] ^ 1)),
    "V2-04": _head(version=1, minimum=2),
    "V2-05": _head(version=2, minimum=2),
    "V2-06": _raw(lambda raw: raw.__setitem__(4000, 1)),
    "V2-07": _head(flags=4),
    "V2-08": _raw(_shorter),
    "V2-09": _raw(_longer),
    "V2-10": _head(length=(64 << 20) + 1),
    "V2-11": _head(start=4096),
    "V2-12": _raw(lambda raw: raw.__setitem__(4100, raw[4100] ^ 1)),
    "V2-13": _raw(_dirty_gap),
    "V2-14": _key_twice,
    "V2-15": _document(lambda document: document.update(surprise=1)),
    "V2-16": _document(lambda document: document["model"].update(architecture="nobody")),
    "V2-17": _document(lambda document: document["model"].update(kv_heads=5)),
    "V2-18": _tensor(0, dtype="F4"),
    "V2-19": _tensor(0, layout="row.v9"),
    "V2-20": _document(lambda document: document["tensors"][0].update(length=document["tensors"][0]["length"] + 4)),
    "V2-21": _document(lambda document: document["tensors"][1].update(name=document["tensors"][0]["name"])),
    "V2-22": _document(lambda document: document["tensors"][1].update(offset=document["tensors"][0]["offset"])),
    "V2-23": _tensor(1, part=1),
    "V2-24": _document(_past_the_end),
    "V2-25": _behind,
    "V2-26": _document(lambda document: document["chunks"]["parts"][0].append("00" * 32)),
    "V2-27": _document(lambda document: document["model"].update(qk_norm=True)),
    "V2-28": _surplus,
    "V2-29": _document(lambda document: document["model"].update(ffn=96)),
    "V2-30": _document(_half_vector),
    "V2-31": _tensor(0, shard={"axis": 1, "unit": 1}),
    "V2-32": _document(_renamed),
    "V2-33": _document(_no_tokenizer),
    "V2-34": _part_alone,
    "V2-35": _manifest_with_data,
    "V2-36": _part_missing,
    "V2-37": _part_of_another_place,
    "V2-38": _part_of_another_set,
    "V2-39": _document(_other_chunk),
    "V2-40": _document(_other_digest),
    "V2-41": _full_gap,
}
