"""Golden cases of plans: what is there, what runs, what is wanted, and the table that people read.

One file a case, its four parts divided by lines of dashes. The columns of a narrow terminal are kept too.
"""

import json
from pathlib import Path

import pytest
from support.imagined import imagined

from halogend.cli.plan_table import plan_lines

CASES = sorted((Path(__file__).parent.parent / "cases/plan").glob("*.txt"))
DASHES = "-" * 10 + "\n"


def plan_of(case):
    there, running, wanted, _ = case.read_text().split(DASHES)
    return imagined(there).plan(running, wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_plan_reads_as_the_case_says(case):
    expected = case.read_text().split(DASHES)[3]
    assert "".join(f"{line}\n" for line in plan_lines(plan_of(case))) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_narrow_terminal_cuts_no_number_of_a_device(case):
    plan = plan_of(case)
    narrow = plan_lines(plan, 60)
    assert all(len(line) <= 60 for line in narrow[1 + len(plan["problems"]) :])
    wide = plan_lines(plan, 200)
    assert [line[:54] for line in narrow] == [line[:54] for line in wide] or any("..." in line for line in narrow)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_plan_is_json_and_its_numbers_add_up(case):
    plan = json.loads(json.dumps(plan_of(case)))
    for device in plan["devices"]:
        for moment in (device["now"], device["peak"], device["after"]):
            assert moment["total_bytes"] == sum(moment[f"{use}_bytes"] for use in ("weights", "working", "kv"))
        assert device["peak"]["total_bytes"] >= max(device["now"]["total_bytes"], device["after"]["total_bytes"])
        held = [each["after"] for each in plan["models"] if each["after"]]
        if any(", " in each["device"] for each in held):  # replicas: told together
            continue
        held = [each for each in held if each["device"] == device["device"]]
        assert device["after"]["total_bytes"] == sum(each["total_bytes"] for each in held)
        most = max(device["budget_bytes"], device["now"]["total_bytes"])
        assert plan["problems"] or device["peak"]["total_bytes"] <= most
    after = sum(device["after"]["total_bytes"] for device in plan["devices"])
    assert after == sum(each["after"]["total_bytes"] for each in plan["models"] if each["after"])


def test_there_are_cases():
    assert len(CASES) >= 12
