"""What a conversion leaves behind when it cannot go on, and what it leaves out of its source."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from support import tiny_hf
from support.conversions import decoded
from support.live import until
from support.safetensors_files import entry, file_bytes
from support.tiny_hf import TinyDir
from support.tiny_layouts import read_state, write_dir
from support.tiny_models import tiny_llama
from support.v2_files import flipped

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.v2.reader import open_v2
from halogend.engine.convert import convert

ROOT = Path(__file__).parents[2]
TRAINING = (
    "optimizer.state.model.layers.0.mlp.up_proj.weight.exp_avg",
    "optimizer.param_groups.step",
    "model.layers.0.mlp.up_proj.weight.grad",
    "model.layers.1.self_attn.q_proj.weight.exp_avg_sq",
    "lr_scheduler.last_epoch",
)


def trained(tmp_path: Path) -> tuple[TinyDir, Path]:
    """A model, and the same as it is saved in the middle of a training."""
    tiny = tiny_hf.make("llama", tmp_path / "model", seed=4, tie_word_embeddings=False)
    state = read_state(tiny.path)
    up = state["model.layers.0.mlp.up_proj.weight"]
    state |= dict(zip(TRAINING, (up * 0.1, torch.tensor(3), up * 2, up.clone(), torch.tensor([7])), strict=True))
    write_dir(tmp_path / "trained", state, tiny.config, tiny.path)
    return tiny, tmp_path / "trained"


def test_c3_what_training_left_behind_is_dropped_and_listed(tmp_path: Path) -> None:
    tiny, source = trained(tmp_path)
    done = convert(source, tmp_path / "m.hgn2", quant_policy="fp32")
    assert sorted(done.dropped) == sorted(TRAINING)
    assert sorted(open_v2(tmp_path / "m.hgn2").metadata.dropped) == sorted(TRAINING)
    convert(tiny.path, tmp_path / "n.hgn2", quant_policy="fp32")
    ours, theirs = decoded(tmp_path / "m.hgn2"), decoded(tmp_path / "n.hgn2")
    assert all(torch.equal(ours[weight], theirs[weight]) for weight in theirs)


def test_c3_it_is_refused_by_name_where_it_is_not_to_be_dropped(tmp_path: Path) -> None:
    _, source = trained(tmp_path)
    for attempt in (
        lambda: convert(source, tmp_path / "m.hgn2", drop_optimizer_state=False),
        lambda: open_checkpoint(source),
    ):
        with pytest.raises(CheckpointError, match="is what training left behind, and has no place") as caught:
            attempt()
        assert caught.value.code == errors.TENSOR_MISMATCH
    assert not (tmp_path / "m.hgn2").exists()


def test_c3_copies_are_dropped_and_listed_and_others_refused(tmp_path: Path) -> None:
    tiny = tiny_hf.make("llama", tmp_path / "model", seed=4)
    state = read_state(tiny.path)
    copy, other = "shadow.q_proj.weight", "shadow.k_proj.weight"
    state |= {
        copy: state["model.layers.1.self_attn.q_proj.weight"].clone(),
        "lm_head.weight": state["model.embed_tokens.weight"].clone(),
    }
    write_dir(tmp_path / "copies", state, tiny.config, tiny.path)
    done = convert(tmp_path / "copies", tmp_path / "m.hgn2", drop_optimizer_state=False)
    assert set(done.dropped) == {copy, "lm_head.weight"}
    with pytest.raises(CheckpointError, match=f"tensor '{copy}' has no place"):
        open_checkpoint(tmp_path / "copies")
    state[other] = state["model.layers.1.self_attn.k_proj.weight"] + 1
    write_dir(tmp_path / "others", state, tiny.config, tiny.path)
    with pytest.raises(CheckpointError, match=f"tensor '{other}' has no place"):
        convert(tmp_path / "others", tmp_path / "n.hgn2")


def test_c7_room_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny_llama(tmp_path / "m.gguf").path
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=3, f_frsize=4096))
    monkeypatch.setattr(os, "pwrite", lambda *_: pytest.fail("a byte was written"))
    with pytest.raises(
        CheckpointError, match=r"there is too little room: \d+ bytes are wanted, 12288 are free"
    ) as caught:
        convert(source, tmp_path / "m.hgn2")
    assert caught.value.code == errors.NO_SPACE
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("last", [1, 7, 20])
def test_c7_a_disk_that_fills_up_all_the_same_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    source = tiny_llama(tmp_path / "m.gguf").path
    left, pwrite = [last], os.pwrite

    def until_full(*arguments: object) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(os, "pwrite", until_full)
    with pytest.raises(CheckpointError, match="cannot be written: No space left on device") as caught:
        convert(source, tmp_path / "m.hgn2")
    assert caught.value.code == errors.NO_SPACE
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_a_source_that_changes_meanwhile_gives_nothing(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "m.gguf").path

    def change(what: str, done: int, total: int) -> None:
        if (what, done) == ("converting", total):
            with source.open("ab") as file:
                file.write(b"more")

    with pytest.raises(CheckpointError, match="changed while it was loaded"):
        convert(source, tmp_path / "m.hgn2", report=change)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_what_is_damaged_never_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    source, path = tiny_llama(tmp_path / "m.gguf").path, tmp_path / "m.hgn2"
    convert(source, path, quant_policy="int8")
    before = path.read_bytes()

    def damage(what: str, done: int, total: int) -> None:
        if (what, done) == ("verifying", 0):
            (written,) = tmp_path.glob(".m.hgn2.tmp-*")
            flipped(written, written.stat().st_size - 1)

    with pytest.raises(CheckpointError, match=r"m\.hgn2: was not written: .* are damaged: ") as caught:
        convert(source, path, quant_policy="bf16", report=damage)
    assert caught.value.code == errors.DIGEST_MISMATCH
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.gguf", "m.hgn2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_however_much_of_the_source_is_left(tmp_path: Path, number: signal.Signals) -> None:
    source = _with_a_hole(tmp_path, 16 << 30)
    told: list[int] = []

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupt(what: str, done: int, _: int) -> None:
        told.append(done)
        if done > 0 and len(told) == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    before = signal.signal(number, end)
    try:
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "m.hgn2", threads=2, report=interrupt)
    finally:
        signal.signal(number, before)
    assert told[-1] < 8 << 30, "the rest was not read"
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "model"}


def _with_a_hole(tmp_path: Path, nbytes: int) -> Path:
    """A model whose one file ends with a tensor of an optimizer, of so many bytes that take no room."""
    tiny, path = tiny_hf.make("llama", tmp_path / "tiny", seed=4), tmp_path / "model"
    write_dir(path, read_state(tiny.path), tiny.config, tiny.path, shards=1)
    file = path / "model.safetensors"
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    header[TRAINING[0]] = entry("F32", [nbytes // 4], len(data), len(data) + nbytes)
    file.write_bytes(file_bytes(header, data))
    os.truncate(file, file.stat().st_size + nbytes)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_end_the_command_and_leave_nothing(tmp_path: Path, number: int, status: int) -> None:
    """Ctrl-C is told to all processes of a terminal."""
    source = _with_a_hole(tmp_path, 64 << 30)
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", "from halogend.cli.main import main; raise SystemExit(main())"]
    command += ["convert", str(source), str(tmp_path / "out/m.hgn2")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as run:
        until(lambda: list((tmp_path / "out").iterdir()), "it writes")
        (child,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
        _, said = run.communicate(timeout=60)
    assert run.returncode == status
    assert "Traceback" not in said
    assert not list((tmp_path / "out").iterdir())
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("policy", ["bf16", "fp8", "int8", "int4"])
def test_a_row_in_another_place_is_found_before_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    from halogend.engine.convert import restated

    source = tiny_hf.make("qwen3", tmp_path / "m", num_hidden_layers=1).path
    ordered = restated.Restated.rows
    is_first = {"blk.0.attn_k": True}

    def shuffled(self: restated.Restated, name: str, first: int, count: int) -> torch.Tensor:
        rows = ordered(self, name, first, count)
        return rows.flip(0) if is_first.pop(name, False) else rows

    monkeypatch.setattr(restated.Restated, "rows", shuffled)
    with pytest.raises(CheckpointError, match=r"of 'blk\.0\.attn_k' do not have the source's values") as caught:
        convert(source, tmp_path / "m.hgn2", quant_policy=policy)
    assert caught.value.code == errors.DIGEST_MISMATCH
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_column_that_counts_for_little_may_be_far_off(tmp_path: Path) -> None:
    """Codes are fitted to the columns that the norm before them lets through, and that is no fault."""
    tiny = tiny_hf.make("llama", tmp_path / "model", seed=4)
    state = read_state(tiny.path)
    for name in state:
        if name.endswith("layernorm.weight"):
            state[name][::3] *= 1e-3
    for name in state:
        if name.endswith(("k_proj.weight", "up_proj.weight")):
            state[name][:, ::3] *= 20
    write_dir(tmp_path / "uneven", state, tiny.config, tiny.path)
    assert convert(tmp_path / "uneven", tmp_path / "m.hgn2", quant_policy="int4").kept == 0


def killed(source: Path, destination: Path, every: int) -> list[dict]:
    command = [sys.executable, "-m", "support.killed_conversion", str(source), str(destination), str(every)]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    out = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths})
    return [json.loads(line) for line in out.stdout.splitlines()]


def check_killed(tmp_path: Path, every: int) -> None:
    source = tiny_llama(tmp_path / "m.gguf", layers=1).path
    (tmp_path / "out").mkdir()
    rounds = killed(source, tmp_path / "out/m.hgn2", every)
    assert len(rounds) > 5
    for found in rounds:
        assert found["opens"] == [], found
        assert found["there"] == found["sound"], found
        assert found["beside"] <= 1, found  # the next conversion has taken away what the last one left
    assert any(found["beside"] for found in rounds)
    assert not rounds[-1]["killed"]
    assert rounds[-1]["sound"]
    assert rounds[-1]["beside"] == 0


def test_a_conversion_killed_at_any_step_leaves_no_file_that_opens(tmp_path: Path) -> None:
    check_killed(tmp_path, 7)


@pytest.mark.slow
def test_a_conversion_killed_at_each_step_leaves_no_file_that_opens(tmp_path: Path) -> None:
    check_killed(tmp_path, 1)


_PEAK = """
import sys, torch
from halogend.engine.bench.memory import Peaks, resident
from halogend.engine.convert import convert
with Peaks() as peaks:
    convert(sys.argv[1], sys.argv[2], quant_policy=sys.argv[3])
print(peaks.anonymous)
"""


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["bf16", "int8", "int4"])
def test_memory_does_not_grow_with_the_model(tmp_path: Path, policy: str) -> None:
    """The largest tensor has 64 MiB, the model 430."""
    (tmp_path / "m").mkdir()
    names = [f"model.layers.{layer}.mlp.{part}_proj.weight" for layer in range(4) for part in ("gate", "up", "down")]
    state = {name: torch.randn(16384, 1024).bfloat16() for name in names if "down" not in name}
    state |= {name: torch.randn(1024, 16384).bfloat16() for name in names if "down" in name}
    for layer in range(4):
        for part, rows in (("q", 1024), ("k", 256), ("v", 256), ("o", 1024)):
            state[f"model.layers.{layer}.self_attn.{part}_proj.weight"] = torch.randn(rows, 1024).bfloat16()
        for norm in ("input", "post_attention"):
            state[f"model.layers.{layer}.{norm}_layernorm.weight"] = torch.ones(1024).bfloat16()
    state |= {
        "model.norm.weight": torch.ones(1024).bfloat16(),
        "model.embed_tokens.weight": torch.randn(32768, 1024).bfloat16(),
    }
    save_file(state, tmp_path / "m/model.safetensors")
    largest = max(tensor.nbytes for tensor in state.values())
    config = {
        **tiny_hf.COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 16384,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32768,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    (tmp_path / "m/config.json").write_text(json.dumps(config))
    (tmp_path / "m/tokenizer.json").write_text("{}")
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "m"), str(tmp_path / "m.hgn2"), policy]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(out.stdout) < 3 * largest + (256 << 20)


def test_progress_is_told_to_the_last_byte(tmp_path: Path) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    source = tiny_llama(tmp_path / "m.gguf").path
    convert(
        source, tmp_path / "m.hgn2", report=lambda what, done, total: told.setdefault(what, []).append((done, total))
    )
    assert list(told) == ["converting", "hashing", "verifying"]
    for steps in told.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1] > 0
        assert len({total for _, total in steps}) == 1
