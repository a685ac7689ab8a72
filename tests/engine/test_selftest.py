"""The self-test finds what is right right, and what is wrong wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from halogen_kernels import Kernels, LinearWeight, select

from halogend.engine.selftest import __main__ as selftest
from halogend.engine.selftest import attention, products, small
from halogend.engine.selftest.subject import Result, Subject

OPERATORS = {
    "linear",
    "gated_linear",
    "mixture",
    "rms_norm",
    "rotate",
    "write_kv",
    "attention_decode",
    "attention_prefill",
}


def subject(kernels: Kernels | None = None, dtype: torch.dtype = torch.bfloat16) -> Subject:
    kernels = kernels or select("cpu", dtype, flash_attention=True)
    generator = torch.Generator().manual_seed(7)
    return Subject("cpu", kernels, dtype, "plain", torch.device("cpu"), generator, sizes="small")


def wrong(results: list[Result]) -> list[str]:
    return [
        f"{each.operator} {each.dtype} {each.case}: {each.error} of {each.allowed}" for each in results if not each.ok
    ]


@pytest.mark.parametrize("check", [products.linear, products.logits, products.gated_linear, products.mixture,
                                   small.rms_norm, small.rotate, attention.write_kv, attention.attend])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_right_operators_pass(check: selftest.Check, dtype: torch.dtype) -> None:
    found = list(check(subject(dtype=dtype)))
    assert found
    assert wrong(found) == []


def test_every_operator_of_a_backend_is_tried() -> None:
    found = list(selftest.results("reference", torch.device("cpu"), "small", 1))
    assert {each.operator for each in found} == OPERATORS
    assert {each.kernel for each in found if each.operator == "linear"} >= {"reference", "reference.int8"}
    assert wrong(found) == []


@pytest.mark.parametrize("check", [small.norm_of_sum, small.embedding, small.sample])
def test_what_only_devices_have_is_tried(check: selftest.Check) -> None:
    kernels = select("triton", torch.bfloat16, flash_attention=True)
    found = list(check(subject(kernels)))
    assert found
    assert wrong(found) == []
    assert list(check(subject())) == []


def test_a_token_that_is_the_second_likeliest_is_found() -> None:
    def second(logits: torch.Tensor, rules: torch.Tensor) -> torch.Tensor:
        return logits.topk(2).indices[:, 1]

    kernels = replace(select("cpu", torch.bfloat16, flash_attention=True), sample=second)
    greedy = next(small.sample(subject(kernels)))
    assert not greedy.ok


def off_by_a_hundredth(x: torch.Tensor, weight: LinearWeight, bias: torch.Tensor | None = None) -> torch.Tensor:
    return select("cpu", x.dtype, flash_attention=True).linear(x, weight, bias) * 1.01


def test_a_product_that_is_a_hundredth_off_is_found() -> None:
    kernels = replace(select("cpu", torch.bfloat16, flash_attention=True), linear=off_by_a_hundredth)
    assert all(not each.ok for each in products.linear(subject(kernels)))


def test_a_cache_that_is_read_past_its_sequence_is_found() -> None:
    right = select("cpu", torch.bfloat16, flash_attention=True)

    def attend(queries: torch.Tensor, cache: torch.Tensor, plan: object) -> torch.Tensor:
        return right.attend(queries, torch.full_like(cache, float("nan")), plan)

    found = list(attention.attend(subject(replace(right, attend=attend))))
    assert all(not each.ok and each.view()["error"] is None for each in found)


def test_a_write_to_the_wrong_place_is_found() -> None:
    right = select("cpu", torch.bfloat16, flash_attention=True)

    def write(cache: torch.Tensor, slots: torch.Tensor, kv: torch.Tensor) -> None:
        right.write_kv(cache, slots, kv)
        cache[slots[0] // 16 - 1] = 0

    assert wrong(list(attention.write_kv(subject(replace(right, write_kv=write)))))


def test_an_operator_that_raises_is_a_result_and_the_others_are_tried() -> None:
    def rotate(heads: torch.Tensor, turns: torch.Tensor, norm: object) -> None:
        raise RuntimeError("no kernel image is available")

    kernels = replace(select("cpu", torch.bfloat16, flash_attention=True), rotate=rotate)
    (result,) = selftest._tried(subject(kernels), "rotate", small.rotate)
    assert not result.ok
    assert result.view()["failure"] == "RuntimeError: no kernel image is available"


def test_devices_are_called_as_torch_does() -> None:
    assert selftest.device_of("cpu:0") == torch.device("cpu")
    assert selftest.device_of("cuda:1") == selftest.device_of("rocm:1") == torch.device("cuda", 1)
