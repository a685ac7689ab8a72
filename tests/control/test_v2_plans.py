"""v2 checkpoints in facts, plans and the ledger: what is mapped counts once, whoever maps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.tiny_models import CHAT_TEMPLATE, tiny_llama
from support.v2_models import as_v2

from halogend.cli.plan_table import plan_lines
from halogend.config import schema
from halogend.config.facts import DeviceFacts, MappedFile
from halogend.config.parse import parse
from halogend.config.places import ParseResult
from halogend.config.rules import check
from halogend.control.desired import make_targets
from halogend.control.facts import Gathered, checkpoint_fingerprint, gather
from halogend.control.forecast import forecast
from halogend.control.ledger import Ledger, together
from halogend.control.machine import Machine
from halogend.control.plan import make_plan
from halogend.control.plan_report import Subject, report
from halogend.control.present import Present
from halogend.control.receipts import ModelAction
from halogend.control.target import Target

GIB = 1 << 30
EMPTY = schema.Document()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.gguf, and int8.hgn2 and int4.hgn2 made from it."""
    folder = tmp_path_factory.mktemp("v2")
    source = tiny_llama(folder / "a.gguf", extra_vocab=4000, chat_template=CHAT_TEMPLATE).path
    for kind in ("int8", "int4"):
        as_v2(source, folder / f"{kind}.hgn2", kind)
    return folder


def looked(*models: dict[str, Any], memory: int = 64 * GIB) -> tuple[ParseResult, Gathered]:
    text = yaml.safe_dump({"apiVersion": schema.API_VERSION, "models": list(models)})
    parsed = parse(text.encode(), "c.yaml", {})
    assert parsed.document is not None, parsed.problems
    device = DeviceFacts(id="cpu:0", memory_bytes=memory, aliases=("cpu",))
    return parsed, gather(parsed.document, Machine(cores=2, has_bf16=True, devices=(device,)))


def targets_of(*models: dict[str, Any], memory: int = 64 * GIB) -> dict[str, Target]:
    parsed, gathered = looked(*models, memory=memory)
    assert parsed.document is not None
    assert check(parsed, gathered.facts) == ()
    return make_targets(parsed.document, gathered)


def test_the_header_says_all_that_a_plan_needs(folder: Path) -> None:
    """Precision, template, sizes; and which file is mapped, by device and inode."""
    for kind in ("int8", "int4"):
        path = folder / f"{kind}.hgn2"
        (target,) = targets_of({"name": "m", "model": str(path)}).values()
        _, gathered = looked({"name": "m", "model": str(path)})
        assert gathered.facts.models["m"].has_chat_template
        assert (gathered.facts.models["m"].format, target.spec.engine.precision) == ("v2", kind)
        assert (target.spec.engine.mmap_threshold, target.spec.engine.verify) == (0.9, "header")
        (mapped,) = target.holding.mapped
        status = path.stat()
        assert (mapped.volume, mapped.inode) == (status.st_dev, status.st_ino)
        assert 0 < mapped.bytes < status.st_size
        assert target.load.held_bytes == target.holding.weights_bytes + mapped.bytes


@pytest.mark.parametrize(("fields", "mapped"), [({"mmap_threshold": 0}, False), ({"precision": "fp32"}, True)])
def test_what_is_copied_and_what_is_packed_is_the_model_s_own(
    folder: Path, fields: dict[str, Any], mapped: bool
) -> None:
    entry = {"name": "m", "model": str(folder / "int8.hgn2")}
    (usual,) = targets_of(entry).values()
    (target,) = targets_of(entry | fields).values()
    assert bool(target.holding.mapped) == mapped
    assert target.holding.mapped_bytes < usual.holding.mapped_bytes
    assert target.holding.weights_bytes > usual.holding.weights_bytes
    assert target.load.expected_s > 0
    assert (target.load.repacked_bytes > 0) == mapped, "what the kernels take is not packed, wherever it lies"


def test_another_precision_of_a_quantised_file_rounds_once_more(folder: Path) -> None:
    entry = {"name": "m", "model": str(folder / "int4.hgn2")}
    assert not targets_of(entry)["m"].load.requantised
    assert not targets_of(entry | {"precision": "fp32"})["m"].load.requantised
    assert targets_of(entry | {"precision": "int8"})["m"].load.requantised


def test_two_models_of_one_file_count_it_once(folder: Path) -> None:
    path = str(folder / "int8.hgn2")
    both = targets_of({"name": "a", "model": path}, {"name": "b", "model": path, "max_batch": 8})
    a, b = both.values()
    assert a.holding.mapped == b.holding.mapped
    held = [a.holding, b.holding]
    assert together(held) == sum(each.own_bytes for each in held) + a.holding.mapped_bytes
    ledger = Ledger()
    ledger.enter("a#1", a.holding)
    ledger.enter("b#1", b.holding)
    assert ledger.by_use("cpu:0")["mapped"] == a.holding.mapped_bytes


def test_a_newcomer_of_the_same_file_needs_no_room_for_what_is_mapped(folder: Path) -> None:
    """C6's other side: two generations share the pages, so the overlap fits where two copies would not."""
    entry = {"name": "m", "model": str(folder / "int8.hgn2"), "max_batch": 1, "max_model_len": 64}
    (old,) = targets_of(entry).values()
    new = targets_of(entry | {"kv_cache_dtype": "fp32"})["m"]
    taken = new.taken_of([old.holding])
    assert taken == old.holding.own_bytes, "what it maps itself is not taken from it"
    alone, beside = new.needs_bytes, taken + new.needs_bytes
    assert beside == together([old.holding, new.least])
    assert beside < old.holding.total_bytes + alone
    other = targets_of(entry | {"model": str(folder / "int4.hgn2")})["m"]
    assert other.taken_of([old.holding]) == old.holding.total_bytes


def test_the_most_of_a_file_that_one_of_them_maps_counts(folder: Path) -> None:
    path = str(folder / "int8.hgn2")
    less = targets_of({"name": "m", "model": path, "mmap_threshold": 0.3})["m"].holding
    more = targets_of({"name": "m", "model": path})["m"]
    assert 0 < less.mapped_bytes < more.holding.mapped_bytes
    assert together([less, more.holding]) == less.own_bytes + more.holding.total_bytes
    assert more.taken_of([less]) == less.own_bytes
    file = less.mapped[0]
    assert isinstance(file, MappedFile)


def test_a_plan_shows_what_is_mapped_once_and_what_is_packed_anew(folder: Path) -> None:
    path = str(folder / "int8.hgn2")
    old = targets_of({"name": "m", "model": path})
    new = targets_of({"name": "m", "model": path, "kv_cache_dtype": "fp32"})
    held = {"m#1": old["m"].holding}
    bytes_ = forecast(held, {"m": Present(old["m"], "m#1", 0)}, new)
    body = report(Subject("c.yaml", "1" * 64, "0" * 64), make_plan(old, new, (None, EMPTY)), bytes_, {}, {})
    (device,) = body["devices"]
    mapped = old["m"].holding.mapped_bytes
    assert {device[when]["mapped_bytes"] for when in ("now", "peak", "after")} == {mapped}
    assert device["peak"]["weights_bytes"] == 2 * old["m"].holding.weights_bytes
    (model,) = body["models"]
    assert model["load"]["mapped_bytes"] == model["at_start"]["mapped_bytes"] == mapped
    assert model["at_start"]["grows_bytes"] == model["at_start"]["total_bytes"] - mapped
    assert "mapped" not in model["load"]
    text = "\n".join(plan_lines(body))
    assert " MiB of it mapped" in text
    assert "\n    mapped " in text


def test_full_checks_need_digests(folder: Path) -> None:
    entry = {"name": "m", "load": {"verify": "full"}}
    assert targets_of(entry | {"model": str(folder / "int8.hgn2")})["m"].spec.engine.verify == "full"
    parsed, gathered = looked(entry | {"model": str(folder / "a.gguf")})
    (problem,) = check(parsed, gathered.facts)
    assert (problem.code, problem.path) == ("HCF-1208", "models[0].load.verify")
    assert "gguf" in problem.message


def test_a_contradicting_format_is_refused(folder: Path) -> None:
    for name, stated in (("int8.hgn2", "gguf"), ("a.gguf", "v2")):
        parsed, gathered = looked({"name": "m", "model": str(folder / name), "load_format": stated})
        (problem,) = check(parsed, gathered.facts)
        assert problem.code == "HCK-1002"
    assert targets_of({"name": "m", "model": str(folder / "int8.hgn2"), "load_format": "v2"})


def test_a_file_that_was_made_anew_is_another_input(folder: Path, tmp_path: Path) -> None:
    path = as_v2(folder / "a.gguf", tmp_path / "m.hgn2")
    before = checkpoint_fingerprint(str(path))
    assert checkpoint_fingerprint(str(path)) == before
    as_v2(folder / "a.gguf", path)
    assert checkpoint_fingerprint(str(path)) != before


def test_l5_how_a_file_is_mapped_and_checked_is_for_the_next_load(folder: Path) -> None:
    entry = {"name": "m", "model": str(folder / "int8.hgn2")}
    old = targets_of(entry)
    for fields in ({"mmap_threshold": 0.5}, {"load": {"verify": "full"}}):
        (model,) = make_plan(old, targets_of(entry | fields), (None, EMPTY)).models
        assert model.action is ModelAction.UPDATE
        assert [change["class"] for change in model.changes] == ["next-load"]
