"""`halogend bench sim`: tables, JSON, and an exit status that says whether the bars were met."""

from __future__ import annotations

import json
import math

import pytest

from halogend.cli.bench import SIMULATIONS
from halogend.cli.main import main as halogend
from halogend.sim.__main__ import main
from halogend.sim.report import Bar, Report

SMALL = {
    "fragmentation": ["--requests", "15", "--pool-tokens", "8192"],
    "mixed": ["--requests", "24", "--clients", "8", "--divide", "8", "--max-batch", "4"],
    "reuse": ["--requests", "12"],
    "flood": ["--requests", "40", "--burst", "20", "--prompt", "40", "--answer", "10"],
    "knee": ["--requests", "16", "--batches", "1", "4", "--prompt", "40", "--answer", "10"],
}


@pytest.mark.parametrize("what", SIMULATIONS)
def test_what_is_printed_as_json_is_what_the_table_says(what, capsys):
    status = main([what, "--seed", "3", *SMALL[what]])
    table = capsys.readouterr().out
    assert main([what, "--seed", "3", "--json", *SMALL[what]]) == status
    report = json.loads(capsys.readouterr().out)
    assert report["rows"]
    assert report["bars"]
    assert report["met"] == (status == 0)
    for name in report["rows"]:
        assert f"\n{name} " in table
    lines = table.splitlines()[-len(report["bars"]) :]
    verdicts = [f"{'met' if bar['met'] else 'MISSED':7}{bar['name']}: " for bar in report["bars"]]
    assert all(line.startswith(said) for line, said in zip(lines, verdicts, strict=True))


def test_the_command_runs_it_as_a_process_of_its_own(capfd):
    status = halogend(["bench", "sim", "mixed", *SMALL["mixed"], "--json"])
    assert json.loads(capfd.readouterr().out)["met"] == (status == 0)


def test_constants_that_cannot_be_read_are_a_usage_error(tmp_path, capsys):
    assert main(["mixed", "--profile", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_a_bar_that_is_missed_is_printed_as_missed():
    report = Report("title", {"arm": {"figure": 1.0}}, [Bar("low", 2.0, 1.0), Bar("high", 2.0, 1.0, least=True)])
    assert not report.met
    low, high = report.table().splitlines()[-2:]
    assert low.startswith("MISSED low")
    assert high.startswith("met    high")


def test_a_figure_of_no_samples_is_missed_and_null():
    report = Report("title", {"arm": {"figure": math.nan}}, [Bar("of nothing", math.nan, 1.0)])
    assert not report.met
    text = json.dumps(report.as_json(), allow_nan=False)
    assert json.loads(text)["rows"] == {"arm": {"figure": None}}
    assert json.loads(text)["bars"][0]["value"] is None


def test_a10_more_places_than_the_knee_make_nobody_slower(capsys):
    """A10: a batch of a hundred is as good as the knee's, since what is too much waits."""
    options = ["--batches", "2", "8", "100", "--requests", "40", "--prompt", "60", "--answer", "20"]
    assert main(["knee", *options, "--pool-tokens", "4096", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rates = {name: row["tokens/s"] for name, row in report["rows"].items()}
    assert rates["2"] < 0.7 * max(rates.values())
    assert rates["100"] >= 0.95 * max(rates.values())
    assert report["notes"][0].startswith("knee: max_batch ")
