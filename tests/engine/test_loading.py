"""Loading: what is refused and how, what is reported, and that pieces and threads change nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from support.engine_driver import engine_spec, generate_greedy, load_engine, spread
from support.f32_gguf import as_f32
from support.tiny_models import tiny_gemma3, tiny_llama

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf import read_header
from halogend.checkpoint.sizes import weight_bytes
from halogend.engine import files, loading, tensors
from halogend.engine.progress import Progress
from halogend.sched.errors import InvariantError
from halogend.sched.step import StepItem, StepPlan

PROMPT = [5, 17, 200, 31, 8, 90]


def first_logits(path: Path, **changes: object) -> torch.Tensor:
    engine = load_engine(path, **changes)
    item = StepItem(1, 0, 0, tuple(PROMPT), from_slot=False, blocks=spread(engine, [1]), samples=True)
    return engine.runner.forward(StepPlan(0, (item,)), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
@pytest.mark.parametrize("changes", [{"load_threads": 3}, {"load_threads": 0}], ids=str)
def test_any_number_of_loading_threads(tmp_path: Path, make: Callable, changes: dict) -> None:
    path = make(tmp_path / "model.gguf", seed=1).path
    assert torch.equal(first_logits(path, **changes), first_logits(path))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_small_slices_and_reads(
    tmp_path: Path, make: Callable, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large matrices come in several parts; heads are paired across them too."""
    path = make(tmp_path / "model.gguf", seed=2, kind="Q8_0").path
    whole = first_logits(path, precision=precision)
    monkeypatch.setattr(tensors, "SLICE_BYTES", 40 * 64 * 4)
    monkeypatch.setattr(files, "_PIECE_BYTES", 777)
    assert torch.allclose(first_logits(path, precision=precision), whole, rtol=1e-5, atol=1e-5)


def test_a_type_of_the_fallback(tmp_path: Path) -> None:
    """Q5_1 is decoded by the gguf package, the embedding table included."""
    path = tiny_llama(tmp_path / "model.gguf", seed=3, kind="Q5_1").path
    assert torch.equal(first_logits(path), first_logits(as_f32(path, tmp_path)))


def test_what_is_reported(tmp_path: Path) -> None:
    path = tiny_gemma3(tmp_path / "model.gguf", kind="Q8_0").path
    progress = Progress()
    stages: list[tuple[str, int, int]] = []
    begin = progress.begin

    def record(stage: str, total: int = 0) -> None:
        stages.append((progress.stage, progress.done, progress.total))
        begin(stage, total)

    progress.begin = record  # type: ignore[method-assign]  # listens in
    loaded = loading.load(engine_spec(path, precision="bf16"), progress)
    header = read_header(path)
    total = sum(tensor.nbytes for tensor in header.tensors.values())
    embedding = header.tensors["token_embd.weight"].nbytes
    # The tied table is read twice: as it is, and packed for the output.
    assert stages == [("starting", 0, 0), ("loading", total + embedding, total + embedding)]
    planned = weight_bytes(open_checkpoint(path), "bf16", "bf16")
    assert planned <= loaded.weights_bytes < 1.2 * planned  # packed forms are padded to whole tiles
    assert loaded.kernels["attention_decode"] == "cpu.sdpa_grouped"
    assert loaded.layout.windows == (None, *[16] * 6)  # the sixth of seven layers is global
    assert loaded.block_bytes == 16 * 2 * 32 * 2
    assert loaded.block_count == (8 << 20) // loaded.block_bytes
    assert loaded.reserve_blocks == (16 << 20) // loaded.block_bytes
    assert loaded.pool_bytes == loaded.block_count * loaded.block_bytes
    assert loaded.load_s > 0
    assert loaded.warmup_s > 0


def test_an_untied_output_needs_no_second_table(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "model.gguf", tied=False, kind="Q8_0").path
    planned = weight_bytes(open_checkpoint(path), "fp32", "fp32")
    assert load_engine(path, backend="reference").weights_bytes == planned


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_planned_bytes_are_held(tmp_path: Path, make: Callable, precision: str) -> None:
    path = make(tmp_path / "model.gguf", kind="Q8_0").path
    loaded = load_engine(path, precision=precision, compute_dtype="fp32", kv_cache_dtype="fp32")
    assert loaded.weights_bytes == weight_bytes(open_checkpoint(path), precision, "fp32")
    assert loaded.kernels["linear"] == f"reference.{precision}"


def test_a_pool_of_two_blocks_warms_up_and_serves(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "model.gguf").path
    block_bytes = load_engine(path).block_bytes
    small = load_engine(path, pool_bytes=2 * block_bytes)
    assert small.block_count == 2
    assert generate_greedy(small, [PROMPT], 4).tokens == generate_greedy(load_engine(path), [PROMPT], 4).tokens
    with pytest.raises(InvariantError, match="holds no block"):
        load_engine(path, pool_bytes=2 * block_bytes - 1)


def test_a_file_cut_short_is_refused_before_and_while_loading(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "model.gguf").path
    progress = Progress()
    begin = progress.begin

    def cut(stage: str, total: int = 0) -> None:
        begin(stage, total)
        if stage == "loading":
            os.truncate(path, path.stat().st_size - 1000)

    progress.begin = cut  # type: ignore[method-assign]  # something happens at that moment
    with pytest.raises(CheckpointError, match="the file ends inside tensor") as caught:
        loading.load(engine_spec(path), progress)
    assert caught.value.code == errors.TRUNCATED
    with pytest.raises(CheckpointError) as caught:
        load_engine(path)
    assert caught.value.code == errors.TRUNCATED


def test_a_file_that_changes_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "model.gguf").path
    progress = Progress()
    begin = progress.begin

    def touch(stage: str, total: int = 0) -> None:
        begin(stage, total)
        if stage == "loading":
            os.utime(path, ns=(1, 1))

    progress.begin = touch  # type: ignore[method-assign]  # something happens at that moment
    with pytest.raises(CheckpointError, match="changed while it was loaded"):
        loading.load(engine_spec(path), progress)


def rewritten(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Path:
    """The file at `path` with another set of tensors."""
    reader = gguf.GGUFReader(path)
    arrays = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    change(arrays)
    writer = gguf.GGUFWriter(path.with_name("changed.gguf"), "llama")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), *field.types[:2])
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_name("changed.gguf")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda tensors: tensors.pop("blk.1.ffn_up.weight"), "blk.1.ffn_up.weight"),
        (lambda tensors: tensors.update({"blk.0.ffn_up.bias": np.zeros(64, np.float32)}), "blk.0.ffn_up.bias"),
        (lambda tensors: tensors.update({"output_norm.weight": np.zeros(63, np.float32)}), "output_norm.weight"),
    ],
    ids=["missing", "surplus", "misshapen"],
)
def test_tensors_that_do_not_fit_are_named(tmp_path: Path, change: Callable, named: str) -> None:
    path = tiny_llama(tmp_path / "model.gguf").path
    assert torch.equal(first_logits(rewritten(path, lambda _: None)), first_logits(path))
    with pytest.raises(CheckpointError, match=named):
        load_engine(rewritten(path, change))


def test_an_undecodable_type_is_named(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "model.gguf").path

    def integers(arrays: dict[str, np.ndarray]) -> None:
        arrays["blk.0.ffn_up.weight"] = arrays["blk.0.ffn_up.weight"].astype(np.int32)

    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_up\.weight.*I32") as caught:
        load_engine(rewritten(path, integers))
    assert caught.value.code == errors.TYPE_UNSUPPORTED


def test_a_contradicting_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"HALOGEN2" + bytes(100))
    with pytest.raises(CheckpointError) as caught:
        load_engine(path, load_format="gguf")
    assert caught.value.code == errors.FORMAT_CONTRADICTION


@pytest.mark.slow
@pytest.mark.models
def test_memory_while_loading_is_the_weights_and_a_little(gemma: Path) -> None:
    """In a process of its own: the peak over what importing costs."""
    import subprocess
    import sys

    script = (
        "import resource, sys; sys.path.insert(0, 'tests')\n"
        "from pathlib import Path\n"
        "from support.engine_driver import load_engine\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak(); loaded = load_engine(Path(sys.argv[1]), precision='bf16')\n"
        "print(peak() - before, loaded.weights_bytes)"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script, str(gemma)], cwd=root, capture_output=True, check=True)
    growth, weights = map(int, ran.stdout.split())
    assert growth < weights + (160 << 20)
