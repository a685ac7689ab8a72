"""The least KV pool that is planned is one the engine takes, windows counted."""

from pathlib import Path

import msgspec
import pytest
import yaml
from support.counting_runner import CountingRunner, make_loaded
from support.tiny_models import tiny_gemma3, tiny_llama

from halogend.checkpoint.kv_groups import group_layers
from halogend.config import schema
from halogend.config.facts import DeviceFacts
from halogend.config.parse import parse
from halogend.control.desired import make_targets
from halogend.control.facts import gather
from halogend.control.machine import Machine
from halogend.control.target import Target
from halogend.engine.limits import check_limits
from halogend.sched.layout import KvLayout

GIB = 1 << 30
MAKERS = {"llama": tiny_llama, "gemma3": tiny_gemma3}


def planned(path: Path, **settings: object) -> tuple[Target, tuple[int | None, ...]]:
    """The target of one model and its layers' windows."""
    model = {"name": "m", "model": str(path), "precision": "bf16", **settings}
    text = yaml.safe_dump({"apiVersion": schema.API_VERSION, "models": [model]})
    device = DeviceFacts(id="cpu:0", memory_bytes=64 * GIB, aliases=("cpu",))
    parsed = parse(text.encode(), "c.yaml", {})
    gathered = gather(parsed.document, Machine(cores=2, has_bf16=True, devices=(device,)))
    return make_targets(parsed.document, gathered)["m"], gathered.models["m"].geometry.windows


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("chunk", ["auto", 16, 100, 600])
@pytest.mark.parametrize("length", [17, 500, 512])
def test_the_engine_takes_the_floor_and_no_block_less(name: str, chunk: str | int, length: int, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / "m.gguf", seed=1).path
    target, windows = planned(path, prefill_chunk=chunk, max_model_len=length)
    groups = group_layers(windows)
    kv_heads, head_dim = (2, 16) if name == "llama" else (1, 32)
    block_bytes = groups.layers_per_table * 16 * 2 * kv_heads * head_dim * 2
    runner = CountingRunner(8)
    runner.block_bytes = block_bytes
    loaded = make_loaded(runner, block_count=2, reserve_blocks=10_000, layout=KvLayout(groups.windows))

    def taken(pool_bytes: int) -> bool:
        limits = msgspec.structs.replace(target.spec.engine.limits, pool_bytes=pool_bytes)
        return check_limits(limits, loaded, 512, 0) is None

    assert taken(target.floor_bytes)
    # Where the last token, which is never computed, begins a block, the plan is a block of each table above.
    spare = len(groups.tables) * block_bytes if length % 16 == 1 else 0
    assert not taken(target.floor_bytes - spare - 1)


@pytest.mark.models
def test_a_full_context_of_gemma_3_270m(gemma: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three of its eighteen layers see all of 32,768 positions, the others 512."""
    target, windows = planned(gemma, max_batch=1)
    position = 2 * 1 * 256 * 2  # bytes of K and V of one layer: one head of 256, bf16
    former = (32_768 + 16) * 18 * position
    full = 3 * 32_768 * position
    sliding = 15 * 49 * 16 * position  # 512 - 1 + 256 positions in a row touch 49 blocks
    reserved = 3 * 16 * position
    assert windows.count(None) == 3
    assert target.spec.engine.limits.max_model_len == 32_768
    assert target.floor_bytes == target.holding.kv_bytes == full + sliding + reserved
    with capsys.disabled():
        print(f"\none request of 32,768 tokens: {target.floor_bytes:,} bytes of KV, {former:,} if no layer slid")
