"""The self-test finds what is right right, and what is wrong wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
from halogen_kernels import Kernels, LinearWeight, StoredPart, WeightFormat, select
from halogen_kernels.triton.chunked import ChunkedCache

from halogend.engine.selftest import __main__ as selftest
from halogend.engine.selftest import attention, products, small
from halogend.engine.selftest.adopted import adopted
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


def subject(
    kernels: Kernels | None = None, dtype: torch.dtype = torch.bfloat16, weights: WeightFormat = "plain"
) -> Subject:
    kernels = kernels or select("cpu", dtype, flash_attention=True)
    generator = torch.Generator().manual_seed(7)
    return Subject("cpu", kernels, dtype, weights, torch.device("cpu"), generator, sizes="small")


def on_triton(kernels: Kernels) -> Subject:
    return replace(subject(kernels), backend="triton")


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


@pytest.mark.slow
def test_all_forms_of_keys_and_values_are_tried() -> None:
    """Those that only devices have, too."""
    kernels = select("triton", torch.bfloat16, flash_attention=True)
    found = list(attention.write_kv(on_triton(kernels))) + list(attention.attend(on_triton(kernels)))
    assert wrong(found) == []
    for operator in ("write_kv", "attention_decode", "attention_prefill"):
        cases = [each.case for each in found if each.operator == operator]
        assert all(any(case.endswith(f", in {word}") for case in cases) for word in ("int8", "fp8"))
        assert any(", in " not in case for case in cases)


def decoded(kernels: Kernels) -> list[Result]:
    """One position of a short sequence, with keys and values in each form."""
    there = on_triton(kernels)
    forms = attention._formats(there)
    return [attention._attended(there, "attention_decode", ((20, 1),), (None, 0.0), form) for form in forms]


def test_keys_and_values_in_eight_bits_are_tried_where_backends_have_them() -> None:
    kernels = select("triton", torch.bfloat16, flash_attention=True)
    found = list(attention.write_kv(on_triton(kernels))) + decoded(kernels)
    assert wrong(found) == []
    assert [each.case.rpartition(", in ")[2] for each in found if ", in " in each.case] == ["int8", "fp8"] * 2
    assert len(found) == 6
    assert len(list(attention.write_kv(subject()))) == 1


HERE = [(backend, weights) for backend in ("cpu", "reference") for weights in ("int8", "fp8", "int4")]
SLOW = [pytest.param("triton", weights, marks=pytest.mark.slow) for weights in ("int8", "fp8")]


@pytest.mark.parametrize(("backend", "weights"), [*HERE, ("triton", "int4"), *SLOW])
def test_matrices_that_are_used_where_they_lie_are_tried(backend: str, weights: WeightFormat) -> None:
    kernels = select(backend, torch.bfloat16, flash_attention=True, weights=weights)
    found = list(adopted(subject(kernels, weights=weights)))
    assert {each.operator for each in found} == {"linear", "gated_linear", "mixture"}
    assert len({each.case.partition(",")[0] for each in found}) == (2 if weights == "int4" else 1)
    assert wrong(found) == []
    assert list(adopted(subject())) == [], "of plain weights there are none"


def test_a_backend_that_reads_minima_as_zeros_is_found() -> None:
    right = select("cpu", torch.bfloat16, flash_attention=True, weights="int4")

    def adopt(parts: Sequence[StoredPart]) -> LinearWeight:
        return right.adopt_linear([
            replace(part, planes={**part.planes, "minima": torch.zeros_like(part.planes["minima"])}) for part in parts
        ])  # fmt: skip

    assert wrong(list(adopted(subject(replace(right, adopt_linear=adopt), weights="int4"))))


def test_a_scale_that_is_a_tenth_off_is_found() -> None:
    right = select("triton", torch.bfloat16, flash_attention=True)

    def attend(queries: torch.Tensor, cache: ChunkedCache, plan: object) -> torch.Tensor:
        got = right.attend(queries, cache, plan)
        return got if cache.scale_addresses is None else got * 1.1

    assert [each.ok for each in decoded(replace(right, attend=attend))] == [True, False, False]


def test_kernels_of_a_device_are_those_that_its_engines_launch(tmp_path: Path) -> None:
    with triton.knobs.cache.scope():
        before = triton.knobs.cache.dir
        selftest.use_kernels(tmp_path, torch.device("cpu"))
        assert triton.knobs.cache.dir == before
        selftest.use_kernels(tmp_path, torch.device("cuda", 0))
        assert triton.knobs.cache.dir == str(tmp_path)


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
