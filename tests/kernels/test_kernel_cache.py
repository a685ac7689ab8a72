"""The folder of compiled kernels: what lies there in part is not there."""

import json
import os

import pytest
import triton
from halogen_kernels.triton import cache, index, preparing, shapes, targets

FILES = {"x.hsaco": b"code" * 8, "x.json": b"{}"}


@pytest.fixture
def kept(tmp_path):
    """What keeps the files of one kernel, and the folder they are in."""
    with triton.knobs.cache.scope():
        cache.use(tmp_path, may_compile=True)
        kept = triton.knobs.cache.manager_class("OWN")
        kept.put_group("x.json", {name: kept.put(data, name) for name, data in FILES.items()})
        yield kept, tmp_path / "OWN"


def test_a_group_is_found_where_the_folder_has_gone(kept, tmp_path):
    group = kept[0].get_group("x.json")
    assert group == {name: str(kept[1] / name) for name in FILES}
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    for may_compile in (True, False):
        cache.use(moved, may_compile=may_compile)
        found = triton.knobs.cache.manager_class("OWN").get_group("x.json")
        assert found == {name: str(moved / "OWN" / name) for name in FILES}


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: os.truncate(folder / "x.hsaco", 3),
        lambda folder: (folder / "x.json").unlink(),
        lambda folder: os.truncate(folder / "__grp__x.json", 10),
        lambda folder: (folder / "__grp__x.json").write_text("[]"),
        lambda folder: (folder / "__grp__x.json").write_text(json.dumps({"child_paths": {"x.json": "x.json"}})),
    ],
    ids=["cut short", "gone", "list cut short", "no list", "another Triton's"],
)
def test_what_is_there_in_part_is_missing(kept, tmp_path, harm):
    harm(kept[1])
    assert kept[0].get_group("x.json") is None
    cache.use(tmp_path, may_compile=False)
    with pytest.raises(cache.MissingError):
        triton.knobs.cache.manager_class("OWN").get_group("x.json")


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"format": 1, "triton": "%s", "kernels": [{}]}'])
def test_an_index_that_is_none_is_empty(tmp_path, text):
    target = targets.named("h100")
    index.path_of(tmp_path, target).write_text(text.replace("%s", triton.__version__))
    assert index.read(tmp_path, target) == {}


def test_a_folder_that_cannot_be_is_found_before_anything_is_compiled(tmp_path):
    cache.enter(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        cache.enter(tmp_path / "file")


def test_beside_a_folder_that_cannot_be_written_what_is_missing_is_kept_by_the_process(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    cache.use_what_is_there(tmp_path)
    there, missing = (triton.knobs.cache.manager_class(key) for key in ("OWN", "OTHER"))
    assert there.get_group("x.json") == {name: str(kept[1] / name) for name in FILES}
    assert missing.get_group("x.json") is None, "it is compiled"
    missing.put_group("x.json", {name: missing.put(data, name) for name, data in FILES.items()})
    found = missing.get_group("x.json")
    assert set(found) == set(FILES)
    assert not any(path.startswith(str(tmp_path)) for path in found.values())
    assert [each.name for each in tmp_path.iterdir()] == ["OWN"]


def test_what_is_missing_is_kept_for_others_where_it_can_be(tmp_path):
    with triton.knobs.cache.scope():
        cache.use_what_is_there(tmp_path / "kernels")
        keeper = triton.knobs.cache.manager_class("OWN")
        assert keeper.put(b"code", "x.hsaco") == str(tmp_path / "kernels/OWN/x.hsaco")


class LookedError(Exception):
    """Triton has looked for a device."""


@pytest.mark.parametrize("may_compile", [True, False])
def test_what_triton_builds_to_speak_to_a_device_goes_where_kernels_are(tmp_path, monkeypatch, may_compile):
    """Not to a home that a service has not; where nothing may be compiled, to a folder of the process."""

    def look():
        keeper = triton.knobs.cache.manager_class("UTILS")
        kept = keeper.put(b"module", "utils.so")
        assert keeper.get_file("utils.so") == kept
        assert kept.startswith(str(tmp_path)) == may_compile
        raise LookedError

    with triton.knobs.cache.scope(), triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = False
        monkeypatch.setattr(targets, "current", look)
        with pytest.raises(LookedError):
            preparing.prepare(shapes.FEW, tmp_path, may_compile=may_compile)
