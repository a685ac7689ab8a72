"""The one way a kernel is launched: it tells what ran, and what is compiled ahead does not run."""

import pytest
import torch
import triton
import triton.language as tl
from halogen_kernels.triton import launching


@triton.jit(do_not_specialize=["count"])
def add_number(x, out, count, number, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count) + number, mask=at < count)


def add(x, number):
    out = torch.empty_like(x)
    launching.launch(add_number, (triton.cdiv(len(x), 16),), x, out, len(x), number, BLOCK=16, num_warps=1)
    return out


def test_a_launch_runs_and_tells_its_variant(device):
    x = torch.randn(50, device=device)
    with launching.launched() as variants:
        torch.testing.assert_close(add(x, 2.5), x + 2.5)
    assert variants == [launching.last()]
    last = launching.last()
    assert (last.op, last.kernel, last.constexprs["BLOCK"]) == ("test_triton_launching", "add_number", 16)
    assert last.name == "add_number[BLOCK=16,num_warps=1](float32,float32)"


def test_what_does_not_start_where_kernels_expect_it_is_refused(device):
    with pytest.raises(ValueError, match="argument 0 of add_number does not start at 16 bytes"):
        add(torch.randn(50, device=device)[1:], 1.0)


def test_while_compiling_nothing_runs_and_tensors_need_no_memory():
    seen = []
    with launching.compiling(lambda kernel, grid, args, constexprs: seen.append((grid, dict(constexprs)))):
        out = add(torch.empty(1 << 40, device="meta"), 1.0)
    assert out.device.type == "meta"
    assert seen == [(((1 << 40) // 16,), {"BLOCK": 16, "num_warps": 1})]
