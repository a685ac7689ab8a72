"""Each rule of docs/checkpoint-v2.md refuses the file that breaks it, by its number (C1, C2)."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest
from support.v2_files import copy_v2, edited
from support.v2_hostile import CASES, OF_THE_DATA

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.rules import RULES
from halogend.checkpoint.v2.verify import verify

PAGE = Path(__file__).parents[2] / "docs/checkpoint-v2.md"


@pytest.mark.parametrize("rule", [rule for rule in CASES if rule not in OF_THE_DATA])
def test_a_file_that_breaks_a_rule_is_refused_by_its_number(rule: str, tmp_path: Path):
    path = CASES[rule](tmp_path)
    with pytest.raises(CheckpointError) as caught:
        open_v2(path)
    assert caught.value.code == RULES[rule]
    assert caught.value.message.endswith(f" ({rule})")
    assert re.match(rf"{tmp_path}(/other)?/m[\w-]*\.hgn2: \S", caught.value.message)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("rule", sorted(OF_THE_DATA))
def test_data_that_breaks_a_rule_opens_and_is_found_by_verify_alone(rule: str, tmp_path: Path):
    path = CASES[rule](tmp_path)
    (fault,) = verify(open_v2(path))
    assert fault.code == RULES[rule]
    assert fault.message.endswith(f" ({rule})")


@pytest.mark.parametrize("item", [b"{}", b"[]", b"1.5", rb'"\u00e9"'])
def test_an_index_that_is_small_on_disk_and_huge_in_memory_is_refused_before_it_is_decoded(item: bytes, tmp_path: Path):
    many = b'{"dropped": [' + b",".join([item] * 400_000) + b"]}"
    path = edited(copy_v2(tmp_path / "m.hgn2"), metadata=many)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=r"values in \d+ bytes, more than any index \(V2-14\)$"):
            open_v2(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(many) + (1 << 20)


def test_every_rule_has_a_file_and_a_place_on_the_page():
    told = re.findall(r"^\| (V2-\d\d) \| (HCK-\d{4}) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(told) == dict(RULES)
    assert len(told) == len(RULES)
    assert set(CASES) == set(RULES)


def test_a_file_of_another_format_is_never_read_as_v2(tmp_path: Path):
    """C1: neither by its name nor by what the document says."""
    path = tmp_path / "m.hgn2"
    path.write_bytes(b"GGUF" + bytes(8000))
    with pytest.raises(CheckpointError, match="V2-01"):
        open_v2(path)
    with pytest.raises(CheckpointError, match="is a gguf checkpoint, but load_format says v2"):
        open_checkpoint(path, "v2")
