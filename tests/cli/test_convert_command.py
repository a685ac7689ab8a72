"""`halogend convert`: what it starts, what it shows, what it says at the end."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.tiny_models import tiny_llama

from halogend.checkpoint.v2.reader import open_v2
from halogend.cli import convert
from halogend.cli.main import main, parser

WRITTEN: dict[str, Any] = {
    "path": "m.hgn2",
    "quant_policy": "int4",
    "bytes": 4096,
    "weights": 9,
    "kept": 7,
    "dropped": [],
}


def told(*messages: dict[str, Any]) -> io.StringIO:
    return io.StringIO("".join(f"{json.dumps(message)}\n" for message in messages))


def test_it_writes_a_checkpoint_and_prints_json_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that begins like a switch is a name."""
    monkeypatch.chdir(tmp_path)
    tiny_llama(tmp_path / "-m.gguf", kind="Q4_1")
    assert main(["convert", "--json", "--block-size", "16", "--", "-m.gguf", "-m.hgn2"]) == 0
    printed = json.loads(capfd.readouterr().out)
    file = open_v2(tmp_path / "-m.hgn2")
    assert printed["bytes"] == file.path.stat().st_size
    assert (printed["quant_policy"], printed["kept"], printed["dropped"]) == ("int4", 14, [])
    assert file.entries["blk.0.attn_q"].block == 16


def test_what_the_child_said_last_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    doing = [{"doing": what, "done": done, "total": 10} for what in ("converting", "hashing") for done in (0, 4, 10)]
    assert convert._follow(told(*doing, {"written": WRITTEN})) == {"written": WRITTEN}
    args = argparse.Namespace(json=False)
    assert convert._tell(args, {"written": {**WRITTEN, "dropped": [f"grad.{i}" for i in range(7)]}}, 0) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "m.hgn2: int4, 9 weights, 4096 bytes",
        "7 weights have the four-bit codes of the source",
        "dropped 7 tensors that no weight is made of: grad.0, grad.1, grad.2, grad.3, grad.4, ...",
    ]


def test_a_refusal_is_told_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"failed": {"code": "HCK-1016", "message": "m.hgn2: there is too little room"}}
    for is_json in (False, True):
        assert convert._tell(argparse.Namespace(json=is_json), failed, 1) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0] == "halogend convert: HCK-1016: m.hgn2: there is too little room"
    assert json.loads(shown.out) == failed


def test_a_child_that_says_nothing_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert convert._tell(argparse.Namespace(json=True), convert._follow(told()), -9) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "halogend convert: the conversion ended with exit status -9\n")


def test_switches_and_their_defaults() -> None:
    args = parser().parse_args(["convert", "a", "b"])
    assert (args.format, args.quant_policy, args.block_size, args.validate, args.drop_optimizer_state) == (
        "v2",
        None,
        32,
        True,
        True,
    )
    args = parser().parse_args(["convert", "a", "b", "--no-validate", "--no-drop-optimizer-state"])
    assert (args.validate, args.drop_optimizer_state) == (False, False)


@pytest.mark.parametrize(
    "wrong", [["--quant-policy", "int3"], ["--block-size", "0"], ["--threads", "x"], ["--format", "v1"]]
)
def test_what_means_nothing_is_a_usage_error(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["convert", "a", "b", *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err
