"""What a self-test leaves behind for plans."""

from pathlib import Path

from support.fake_devices import accelerator
from support.played.world import document

from halogend.cli.plan_table import plan_lines
from halogend.control.selftest_record import FILE, LinkResult, Record, read_record, write_record

GIB = 1 << 30


def link(share, source="host", target="cuda:0"):
    return LinkResult(source=source, target=target, kind="pcie", bytes_per_s=share * 64e9, nominal_bytes_per_s=64e9)


def test_under_seven_tenths_of_its_data_sheet_a_link_is_slow():
    assert [link(share).is_slow for share in (0.69, 0.7, 1.0)] == [True, False, False]
    untold = LinkResult(source="host", target="cuda:0", kind="link", bytes_per_s=1.0, nominal_bytes_per_s=None)
    assert (untold.share, untold.is_slow) == (None, False)


def test_only_links_of_the_devices_in_question_are_repeated():
    record = Record(at=1.0, links=(link(0.5), link(0.9), link(0.1, "cuda:1", "cuda:2")))
    assert record.warnings(["cuda:0"]) == [
        "the link host -> cuda:0 (pcie) carries 32.0 of 64.0 GB/s, under 70% (halogend selftest)"
    ]
    assert len(record.warnings(["cuda:2"])) == 1
    assert record.warnings(["cpu:0"]) == []


def test_what_was_written_is_read_again_and_rubbish_is_nothing(tmp_path: Path):
    record = Record(at=5.0, links=(link(0.5),))
    write_record(tmp_path / "state", record)
    assert read_record(tmp_path / "state") == record
    assert [each.name for each in (tmp_path / "state").iterdir()] == [FILE]
    (tmp_path / "state" / FILE).write_text("{")
    assert read_record(tmp_path / "state") is None
    assert read_record(tmp_path / "none") is None
    assert read_record(None) is None


async def test_a_plan_repeats_what_is_slow(world, tmp_path):
    state = tmp_path / "state"
    there = await world(8 * GIB, state=state, accelerators=(accelerator(),))
    write_record(state, Record(at=1.0, links=(link(0.25),)))
    there.text = document(there.model("a", device="h100:0"))
    plan = await there.steering.plan()
    (warning,) = plan["warnings"]
    assert warning in "\n".join(plan_lines(plan, width=40)), "and never cut"
    there.text = document(there.model("a", device="cpu:0"))
    assert (await there.steering.plan())["warnings"] == []
