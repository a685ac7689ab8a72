"""Devices that are there, by each of their names; those no engine can run on; one budget for two of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.config_documents import HEAD, read

from halogend.config.codes import Code
from halogend.config.facts import DeviceFacts, Facts, KvFacts, ModelFacts
from halogend.config.kernel_rules import unjudged_kernels
from halogend.config.placement import by_device, divided, kv_ratios, same_budget
from halogend.config.problems import Problem
from halogend.config.rules import check
from halogend.config.schema import Document
from halogend.config.targets import target, targets

GIB = 1 << 30
KV = KvFacts(block_bytes=160_000, windows=(None,), step_tokens=256)
FINE = ModelFacts(format="gguf", context_length=2048, weight_bytes=GIB, working_bytes=GIB, kv=KV)
CPU = DeviceFacts(id="cpu:0", memory_bytes=16 * GIB, aliases=("cpu",))
GPU = DeviceFacts(id="cuda:0", memory_bytes=8 * GIB, aliases=("h100:0",), kind="cuda", product="h100", name="H100")
SHARED = DeviceFacts(
    id="ai_max_395:0", memory_bytes=12 * GIB, aliases=("rocm:0",), kind="rocm", name="Radeon", in_host_memory=True
)


def judged(text: str, devices: tuple[DeviceFacts, ...], model: ModelFacts = FINE) -> list[Problem]:
    parsed = read(text)
    names = [each.name for each in parsed.partial.models] if parsed.partial else []
    return list(check(parsed, Facts(models=dict.fromkeys(names, model), devices=devices)))


def document(text: str) -> Document:
    found = read(text).document
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "h100", "h100:0"])
def test_every_name_of_a_device_means_it(name: str) -> None:
    text = f"model: /a.gguf\ndevice: {name}\n"
    assert judged(text, (GPU, CPU)) == []
    assert list(by_device(document(text), (GPU, CPU))) == ["cuda:0"]


def test_one_that_no_engine_can_run_on_says_why() -> None:
    broken = replace(GPU, unusable="the installed torch is not built for CUDA")
    (problem,) = judged("model: /a.gguf\ndevice: h100\n", (CPU, broken))
    assert (problem.code, problem.line) == (Code.DEVICE_UNUSABLE, 2)
    assert problem.message == "no engine can run on h100:0 (H100): the installed torch is not built for CUDA"


def test_auto_is_the_first_that_an_engine_can_run_on() -> None:
    text = "model: /a.gguf\n"
    broken = replace(GPU, unusable="something")
    assert list(by_device(document(text), (GPU, CPU))) == ["cuda:0"]
    assert list(by_device(document(text), (broken, CPU))) == ["cpu:0"]
    spare = document(HEAD + "devices: [{id: h100, spare: true}]\nmodels: [{name: a, model: /a.gguf}]\n")
    assert list(by_device(spare, (GPU, CPU))) == ["cpu:0"], "kept spare by another of its names"
    assert judged("model: /a.gguf\n", (broken, CPU)) == []


def test_two_names_of_one_device_are_no_two_devices() -> None:
    text = "model: /a.gguf\ndevice: [cuda:0, h100:0]\nexec_mode: data_parallel\n"
    (problem,) = judged(text, (GPU, CPU))
    assert (problem.code, problem.message) == (Code.DEVICE_LIST, "h100:0 and cuda:0 are the same device")
    twice = HEAD + "allow_empty: true\ndevices: [{id: cuda:0}, {id: h100:0}]\n"
    assert [each.path for each in judged(twice, (GPU, CPU))] == ["devices"]


def test_a_spare_device_is_spare_by_each_of_its_names() -> None:
    text = HEAD + "devices: [{id: h100, spare: true}]\nmodels: [{name: a, model: /a.gguf, device: cuda:0}]\n"
    (problem,) = judged(text, (GPU, CPU))
    assert (problem.code, problem.path) == (Code.DEVICE_SPARE, "models[0].device")


def test_a_device_s_processes_have_to_fit_on_the_host() -> None:
    model = replace(FINE, host_bytes=20 * GIB)
    (problem,) = judged("model: /a.gguf\ndevice: h100\n", (GPU, CPU), model)
    assert (problem.code, problem.path) == (Code.WEIGHTS_DO_NOT_FIT, "models[0].model")
    assert "the models on cpu:0 need 20.0 GiB" in problem.message
    assert judged("model: /a.gguf\ndevice: h100\n", (GPU, CPU), replace(FINE, host_bytes=GIB)) == []


HALVES = (
    HEAD
    + """\
devices: [{id: %s, cores: "0-1"}, {id: %s, cores: "2-3"}]
models: [{name: a, model: /a.gguf, device: h100}, {name: b, model: /b.gguf, device: %s}]
"""
)


@pytest.mark.parametrize(("first", "second"), [("cpu:0", "cpu:1"), ("cpu:1", "cpu:2")])
def test_of_a_divided_host_a_device_s_processes_are_counted_once(first: str, second: str) -> None:
    """On its first part: the other has room for its own models."""
    text = HALVES % (first, second, second)
    devices = divided(document(text), (GPU, CPU))
    assert [(each.id, each.memory_bytes) for each in devices[1:]] == [(first, 8 * GIB), (second, 8 * GIB)]
    assert judged(text, devices, replace(FINE, host_bytes=7 * GIB)) == []
    (problem,) = judged(text, devices, replace(FINE, host_bytes=9 * GIB))
    assert f"the models on {first} need 9" in problem.message


TWO = HEAD + ("models:\n  - {name: a, model: /a.gguf, device: rocm:0}\n  - {name: b, model: /b.gguf, device: cpu:0}\n")


def test_a_part_without_memory_of_its_own_and_the_host_have_one_budget() -> None:
    devices = (SHARED, CPU)
    assert same_budget("cpu:0", devices) == ("cpu:0", "ai_max_395:0")
    assert same_budget("ai_max_395:0", devices) == ("ai_max_395:0", "cpu:0")
    assert same_budget("cuda:0", (*devices, GPU)) == ("cuda:0",)
    assert kv_ratios(document(TWO), devices) == {("a", "ai_max_395:0"): 0.375, ("b", "cpu:0"): 0.375}
    assert kv_ratios(document(TWO), (replace(SHARED, in_host_memory=False), CPU)) == {
        ("a", "ai_max_395:0"): 0.75,
        ("b", "cpu:0"): 0.75,
    }


def test_what_one_of_them_takes_the_other_has_not() -> None:
    heavy = replace(FINE, weight_bytes=6 * GIB)
    assert {each.code for each in judged(TWO, (SHARED, CPU), heavy)} == {Code.WEIGHTS_DO_NOT_FIT}
    assert judged(TWO, (replace(SHARED, in_host_memory=False), CPU), heavy) == []


def test_a_limit_for_heat_is_an_accelerator_s() -> None:
    text = HEAD + "allow_empty: true\ndevices: [{{id: {}, thermal: {}}}]\n"
    assert judged(text.format("cuda:0", 70), (GPU, CPU)) == []
    assert judged(text.format("cpu:0", "off"), (GPU, CPU)) == []
    (problem,) = judged(text.format("cpu:0", 70), (GPU, CPU))
    assert (problem.code, problem.path) == (Code.DEVICE_THERMAL, "devices[0].thermal")


def test_targets_are_devices_of_one_machine() -> None:
    assert (target("ai_max_395").id, target("ai_max_395").aliases) == ("ai_max_395:0", ("rocm:0",))
    assert target("ai_max_395").in_host_memory
    assert (target("h200:3").id, target("h200:3").aliases) == ("cuda:3", ("h200:3",))
    found = targets(["a100", "h100", "mi300x:2", "a100"])
    assert [(each.id, each.aliases, each.arch) for each in found.accelerators] == [
        ("cuda:0", ("a100:0",), "sm_80"),
        ("cuda:1", ("h100:0",), "sm_90"),
        ("rocm:2", ("mi300x:2",), "gfx942"),
    ]
    with pytest.raises(ValueError, match="known are cpu, ai_max_395"):
        target("abacus")
    with pytest.raises(ValueError, match="names no known device"):
        target("h200:x")


def test_every_machine_has_a_processor() -> None:
    unknown = targets(["h100"]).devices(CPU)
    assert [(each.id, each.aliases) for each in unknown] == [("cuda:0", ("h100:0",)), ("cpu:0", ("cpu",))]
    heavy = replace(FINE, weight_bytes=70 * GIB, host_bytes=10 * GIB)
    assert judged(BESIDE, unknown, replace(heavy, weight_bytes=1000 * GIB)), "what fits on the accelerator is known"
    assert judged(BESIDE, unknown, heavy) == [], "nothing is said of the processor"
    (problem,) = judged(BESIDE, targets(["h100", "cpu=64GiB"]).devices(CPU), heavy)
    assert "the models on cpu:0 need 81.0 GiB for weights and working memory, it has 57.6 GiB" in problem.message
    assert targets(["h100", "cpu"]).devices(CPU)[-1] == CPU
    assert [each.id for each in targets(["cpu:0=64GiB"]).devices()] == ["cpu:0"]


BESIDE = HEAD + "models: [{name: a, model: /a.gguf, device: h100}, {name: b, model: /b.gguf, device: cpu:0}]\n"


def test_a_target_may_have_other_memory_than_most() -> None:
    (device,) = targets(["a100=40GiB"]).accelerators
    assert (device.memory_bytes, device.reserve_bytes) == (40 * GIB, 2 * GIB)
    assert targets(["ai_max_395=64GiB"]).accelerators[0].reserve_bytes == 0, "the host keeps it"
    for wrong in ("a100=40", "a100=", "cpu=many", "cpu=0"):
        with pytest.raises(ValueError, match="must be"):
            targets([wrong])
    with pytest.raises(ValueError, match="a machine has one processor, cpu:0"):
        targets(["cpu:1"])


@pytest.mark.parametrize("fields", ["precision: fp8", "precision: fp16", "kv_cache_dtype: fp8", "kv_cache_dtype: int8"])
def test_what_only_accelerators_have_is_judged_by_what_auto_is(fields: str) -> None:
    text = f"model: /a.gguf\n{fields}\n"
    assert judged(text, (GPU, CPU)) == []
    (problem,) = judged(text, (replace(GPU, unusable="it is divided"), CPU))
    assert (problem.code, problem.line) == (Code.KERNELS, 2)
    assert "needs the kernels of accelerators, and `device` auto is a processor here" in problem.message
    assert check(read(text)) == (), "no machine was asked"
    (left,) = unjudged_kernels(document(text), read(text).places)
    assert "needs an accelerator, and no machine was asked what `device` auto is" in left.message
    assert judged(f"{text}kernels: {{backend: triton}}\n", (CPU,)) == [], "to compare with"
    assert list(unjudged_kernels(document(f"{text}device: cpu\n"), read(text).places)) == []


def test_what_only_processors_have_is_judged_by_what_auto_is_too() -> None:
    for kernels in ("{backend: cpu}", "{backend: reference, flash_attention: false}"):
        text = f"model: /a.gguf\nkernels: {kernels}\n"
        assert judged(text, (CPU,)) == []
        (problem,) = judged(text, (GPU, CPU))
        assert "runs on processors, and `device` auto is cuda:0 here" in problem.message
    assert judged("model: /a.gguf\nflash_attention: false\n", (CPU,)) == []
    (problem,) = judged("model: /a.gguf\nflash_attention: false\n", (GPU, CPU))
    assert "triton has fused attention only" in problem.message
    (problem,) = judged("model: /a.gguf\nkv_cache_dtype: fp32\n", (GPU, CPU))
    assert "is not bf16, which products are in on an accelerator" in problem.message
