"""Rules with facts: files, devices and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.config_documents import HEAD, read

from halogend.config.codes import Code
from halogend.config.facts import DeviceFacts, Facts, Fault, KvFacts, ModelFacts
from halogend.config.placement import divided, kv_ratios
from halogend.config.problems import Problem
from halogend.config.rules import check

MIB = 1 << 20
FINE = ModelFacts(
    format="gguf",
    architecture="llama",
    context_length=2048,
    weight_bytes=100 * MIB,
    working_bytes=50 * MIB,
    kv=KvFacts(block_bytes=160_000, windows=(None,), step_tokens=256),
)
CPU = DeviceFacts(id="cpu:0", memory_bytes=1000 * MIB, reserve_bytes=100 * MIB, foreign_bytes=50 * MIB)


def judged(text: str, *, model: ModelFacts = FINE, devices: tuple[DeviceFacts, ...] | None = (CPU,)) -> list[Problem]:
    parsed = read(text)
    names = [each.name for each in parsed.partial.models] if parsed.partial else []
    return list(check(parsed, Facts(models=dict.fromkeys(names, model), devices=devices)))


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    assert problem.hint
    return problem


def test_what_fits_has_no_problem() -> None:
    assert judged("model: /a.gguf\nmax_model_len: 2048\n") == []


def test_a_fault_of_the_file_stands_at_the_path() -> None:
    fault = Fault(Code.CHECKPOINT_TRUNCATED, "/a.gguf: ends after 5 of 9 bytes")
    problem = only(judged("port: 1\nmodel: /a.gguf\n", model=ModelFacts(fault=fault)))
    assert (problem.code, problem.line, problem.column, problem.path) == ("HCK-1003", 2, 8, "models[0].model")
    assert problem.hint == Code.CHECKPOINT_TRUNCATED.remedy


def test_a_format_that_contradicts_stands_at_load_format() -> None:
    problem = only(judged("model: /a.gguf\nload_format: gguf\n", model=ModelFacts(format="safetensors")))
    assert (problem.code, problem.line) == (Code.CHECKPOINT_FORMAT_CONTRADICTION, 2)
    assert "safetensors" in problem.message


def test_a_format_that_cannot_be_read() -> None:
    problem = only(judged("model: /a.gguf\n", model=ModelFacts(format="unknown")))
    assert problem.code == Code.CHECKPOINT_UNKNOWN_FORMAT
    assert "v2" in problem.hint


@pytest.mark.parametrize("found", ["gguf", "safetensors", "v2"])
def test_full_checks_are_of_a_format_that_has_digests(found: str) -> None:
    problems = judged("model: /a.gguf\nload: {verify: full}\n", model=replace(FINE, format=found))
    assert [problem.code for problem in problems] == ([] if found == "v2" else [Code.NO_DIGESTS])


def test_a_template_that_cannot_be_read_stands_at_its_field() -> None:
    fault = Fault(Code.TEMPLATE_UNREADABLE, "chat_template 'x' cannot be read")
    problem = only(judged("model: /a.gguf\nchat_template: x\n", model=replace(FINE, template_fault=fault)))
    assert (problem.code, problem.line) == (Code.TEMPLATE_UNREADABLE, 2)
    assert "chatml" in problem.hint


@pytest.mark.parametrize("field", ["max_model_len", "max_prompt_len", "max_decode_len"])
def test_over_the_models_own_limit_says_by_how_much(field: str) -> None:
    problem = only(judged(f"model: /a.gguf\n{field}: 2050\n"))
    assert (problem.code, problem.line) == (Code.OVER_MODEL_LIMIT, 2)
    assert "2048" in problem.message
    assert "by 2" in problem.message
    assert judged(f"model: /a.gguf\n{field}: 2048\n") == []


def test_a_device_that_is_not_there_names_what_is() -> None:
    there = (CPU, DeviceFacts(id="rocm:0", memory_bytes=1 << 40, aliases=("ai_max_395:0",)))
    problem = only(judged("model: /a.gguf\ndevice: mi300x:1\n", devices=there))
    assert (problem.code, problem.line, problem.column) == (Code.DEVICE_NOT_THERE, 2, 9)
    assert "cpu:0, rocm:0 = ai_max_395:0" in problem.message
    assert "--target mi300x:1" in problem.hint
    assert judged("model: /a.gguf\ndevice: ai_max_395\n", devices=there) == []


def test_a_listed_device_that_is_not_there() -> None:
    text = HEAD + "allow_empty: true\ndevices: [{id: cuda:3}]\n"
    assert only(judged(text)).path == "devices[0].id"


def test_unknown_devices_are_not_judged() -> None:
    assert judged("model: /a.gguf\ndevice: cuda:0\n", devices=None) == []


def test_weights_over_the_device() -> None:
    problem = only(judged("model: /a.gguf\n", model=replace(FINE, weight_bytes=800 * MIB)))
    assert (problem.code, problem.path) == (Code.WEIGHTS_DO_NOT_FIT, "models[0].model")
    assert "850.0 MiB" in problem.message


def test_the_weights_of_all_models_of_a_device_count() -> None:
    text = HEAD + "models:\n  - {name: a, model: /a.gguf}\n  - {name: b, model: /b.gguf}\n"
    assert only(judged(text, model=replace(FINE, weight_bytes=400 * MIB))).code == Code.WEIGHTS_DO_NOT_FIT


def test_s8_one_full_request_has_to_fit_and_the_hint_names_the_longest_that_does() -> None:
    # 850 MiB usable, 150 fixed: 700 MiB of KV budget, a hundredth of it is 7 MiB = 45 blocks of 160,000 bytes
    text = "model: /a.gguf\nkv_cache_ratio: 0.01\nmax_model_len: {}\nwatermarks: off\n"
    problem = only(judged(text.format(721)))
    assert (problem.code, problem.line) == (Code.REQUEST_DOES_NOT_FIT, 3)
    assert "at most 720" in problem.hint
    assert judged(text.format(720)) == []


def test_the_hint_of_a_sliding_model_counts_its_windows() -> None:
    # 45 blocks again: from 272 positions on, each of two tables with a window stays at 1 + (31 + 256 - 1) / 16 = 19
    sliding = KvFacts(block_bytes=160_000, windows=(None, 32, 32), step_tokens=256)
    model = replace(FINE, kv=sliding)
    text = "model: /a.gguf\nkv_cache_ratio: 0.01\nmax_model_len: {}\nwatermarks: off\n"
    problem = only(judged(text.format(300), model=model))
    assert "at most 240" in problem.hint  # 15 blocks of each
    assert judged(text.format(240), model=model) == []
    small_steps = replace(model, kv=replace(sliding, step_tokens=16))
    problem = only(judged(text.format(2048), model=small_steps))
    assert "at most 592" in problem.hint  # 45 - 2 * 4 = 37 blocks
    assert judged(text.format(592), model=small_steps) == []


def test_a_full_request_is_no_longer_than_its_parts() -> None:
    text = "model: /a.gguf\nkv_cache_ratio: 0.01\nmax_prompt_len: 600\nmax_decode_len: {}\nwatermarks: off\n"
    assert judged(text.format(120)) == []
    assert only(judged(text.format(121))).code == Code.REQUEST_DOES_NOT_FIT


def test_bytes_are_taken_as_the_pool() -> None:
    text = "model: /a.gguf\nmax_model_len: 16\nkv_cache_bytes: {}\nwatermarks: off\n"
    assert judged(text.format(160_000)) == []
    assert only(judged(text.format(159_999))).code == Code.REQUEST_DOES_NOT_FIT


def test_one_full_request_has_to_fit_below_the_hard_watermark() -> None:
    # 45 blocks again; 0.8 of them are 36 blocks = 576 tokens
    text = "model: /a.gguf\nkv_cache_ratio: 0.01\nmax_model_len: {}\nwatermarks: {{hard: 0.8}}\n"
    problem = only(judged(text.format(577)))
    assert (problem.code, problem.line) == (Code.REQUEST_DOES_NOT_FIT, 3)
    assert "below `watermarks.hard` 0.8" in problem.message
    assert "at most 576" in problem.hint
    assert judged(text.format(576)) == []


def test_the_bounds_of_the_pool_count_like_its_share() -> None:
    bounded = "model: /a.gguf\nmax_model_len: {}\nwatermarks: off\nkv_block_pool: {{max_tokens: 640}}\n"
    assert only(judged(bounded.format(641))).code == Code.POOL_BOUNDS
    assert judged(bounded.format(640)) == []
    assert judged(bounded.format("1040\nmax_prompt_len: 600\nmax_decode_len: 40")) == []
    problem = only(judged("model: /a.gguf\nkv_block_pool: {max_tokens: 640}\n"))
    assert (problem.code, "raise kv_block_pool.max_tokens" in problem.hint) == (Code.REQUEST_DOES_NOT_FIT, True)
    least = "model: /a.gguf\nkv_cache_ratio: 0.01\nmax_model_len: 160\nkv_block_pool: {{min_tokens: {}}}\n"
    problem = only(judged(least.format(721)))
    assert (problem.code, problem.line, problem.column) == (Code.POOL_BOUNDS, 4, 29)
    assert judged(least.format(640)) == []


def test_the_document_may_allow_less_memory_than_there_is() -> None:
    text = HEAD + "devices: [{{id: cpu, memory: {}, reserve: 0KiB}}]\nmodels: [{{name: a, model: /a.gguf}}]\n"
    assert only(judged(text.format("150MiB").replace(", reserve: 0KiB", ""))).code == Code.WEIGHTS_DO_NOT_FIT
    assert judged(text.format("8GiB").replace(", reserve: 0KiB", "")) == []


def test_broken_models_are_left_out_and_the_others_are_judged_at_their_places() -> None:
    text = HEAD + (
        "models:\n  - {name: a, model: /a.gguf, max_batch: x}\n  - {name: b, model: /b.gguf, max_model_len: 4096}\n"
    )
    problems = judged(text)
    assert [(p.code, p.line, p.path) for p in problems] == [
        (Code.WRONG_TYPE, 3, "models[0].max_batch"),
        (Code.OVER_MODEL_LIMIT, 4, "models[1].max_model_len"),
    ]


@pytest.mark.parametrize(
    ("ratios", "shares"),
    [
        ((None,), (0.75,)),
        ((None, None, None), (0.25, 0.25, 0.25)),
        ((0.5, None), (0.5, 0.5)),
        ((0.1, None, None), (0.1, 0.375, 0.375)),
        ((0.9, 0.1), (0.9, 0.1)),
        ((0.7, None), (0.7, 0.3)),
    ],
)
def test_models_without_a_ratio_share_what_is_left(ratios: tuple[float | None, ...], shares: tuple[float, ...]) -> None:
    entries = "".join(
        f"  - {{name: m{i}, model: /a.gguf{'' if ratio is None else f', kv_cache_ratio: {ratio}'}}}\n"
        for i, ratio in enumerate(ratios)
    )
    document = read(HEAD + "models:\n" + entries).document
    assert document is not None
    assert list(kv_ratios(document).values()) == pytest.approx(shares)


def test_models_on_other_devices_do_not_share() -> None:
    document = read(
        HEAD + "models:\n  - {name: a, model: /a.gguf}\n  - {name: b, model: /a.gguf, device: cuda}\n"
        "  - {name: c, model: /a.gguf, kv_cache_bytes: 1GiB}\n"
    ).document
    assert document is not None
    assert kv_ratios(document) == {("a", "cpu:0"): 0.75, ("b", "cuda:0"): 0.75}


HOST = DeviceFacts(
    id="cpu:0",
    memory_bytes=1000 * MIB,
    reserve_bytes=100 * MIB,
    foreign_bytes=50 * MIB,
    aliases=("cpu",),
    cores=(0, 1, 2, 3),
)
TWO = "devices: [{{id: 'cpu:0', cores: '0'{}}}, {{id: 'cpu:1', cores: '1-3'{}}}]\n"


def parts(devices: str) -> tuple[DeviceFacts, ...]:
    document = read(HEAD + "allow_empty: true\n" + devices).document
    assert document is not None
    return divided(document, (HOST, DeviceFacts(id="cuda:0", memory_bytes=1)))


def on_host(devices: str, *, model: ModelFacts = FINE, on: str = "auto") -> list[Problem]:
    parsed = read(HEAD + devices + f"models: [{{name: a, model: /a.gguf, device: '{on}', max_model_len: 16}}]\n")
    assert parsed.partial is not None
    facts = Facts(models={"a": model}, devices=divided(parsed.partial, (HOST,)), host=HOST)
    return list(check(parsed, facts))


def test_a_host_that_is_not_divided_is_one_device() -> None:
    assert parts("")[0] == HOST
    assert parts("devices: [{id: cpu, memory: 500MiB}]\n")[0] == HOST
    assert parts("devices: [{id: cpu, cores: '1-2'}]\n")[0] == replace(HOST, cores=(1, 2))
    assert parts("devices: [{id: 'cpu:1', cores: '1-2'}]\n")[0] == HOST  # which is a device that is not there


def test_what_is_not_stated_is_shared_by_cores() -> None:
    first, second, other = parts(TWO.format("", ""))
    assert (first.id, first.cores, first.memory_bytes) == ("cpu:0", (0,), 250 * MIB)
    assert (second.id, second.cores, second.memory_bytes) == ("cpu:1", (1, 2, 3), 750 * MIB)
    assert (first.reserve_bytes, second.reserve_bytes) == (25 * MIB, 75 * MIB)
    assert first.foreign_bytes + second.foreign_bytes == HOST.foreign_bytes
    assert other.id == "cuda:0"


def test_what_is_stated_is_taken_off_first_and_one_device_takes_the_cores_that_are_left() -> None:
    three = "devices: [{id: 'cpu:7'}, {id: 'cpu:2', cores: '1', memory: 400MiB}, {id: 'cpu:0', cores: '3'}]\n"
    found = [(each.id, each.cores, each.memory_bytes) for each in parts(three)[:3]]
    assert found == [("cpu:0", (3,), 200 * MIB), ("cpu:2", (1,), 400 * MIB), ("cpu:7", (0, 2), 400 * MIB)]


def test_memory_over_the_hosts_is_told_with_the_numbers() -> None:
    assert on_host(TWO.format(", memory: 400MiB", ", memory: 600MiB")) == []
    problem = only(on_host(TWO.format(", memory: 401MiB", ", memory: 600MiB")))
    assert (problem.code, problem.path) == (Code.DEVICES_OVER_HOST, "devices[1].memory")
    assert "1001.0 MiB" in problem.message
    assert "1000.0 MiB" in problem.message
    nothing_left = on_host(TWO.format(", memory: 1000MiB", ""))
    assert [each.code for each in nothing_left] == [Code.DEVICES_OVER_HOST]
    assert "nothing is left for cpu:1" in nothing_left[0].message


def test_cores_that_are_not_there() -> None:
    problem = only(on_host("devices: [{id: 'cpu:0', cores: '2-9'}]\n"))
    assert (problem.code, problem.path) == (Code.DEVICE_CORES, "devices[0].cores")
    assert "4-9" in problem.message
    assert "0-3" in problem.message
    none_left = only(on_host("devices: [{id: 'cpu:0', cores: '0-3'}, {id: 'cpu:1'}]\n"))
    assert none_left.path == "devices[1].id"


def test_each_device_of_a_host_has_its_own_room() -> None:
    heavy = replace(FINE, weight_bytes=400 * MIB)
    assert on_host(TWO.format("", ""), model=heavy, on="cpu:1") == []
    assert only(on_host(TWO.format("", ""), model=heavy, on="cpu:0")).code == Code.WEIGHTS_DO_NOT_FIT
    gone = only(on_host(TWO.format("", ""), on="cpu:2"))
    assert gone.code == Code.DEVICE_NOT_THERE
    assert "cpu:0, cpu:1" in gone.message


def test_auto_never_means_a_spare_device() -> None:
    devices = "devices: [{id: 'cpu:0', cores: '0', spare: true}, {id: 'cpu:1', cores: '1-3'}]\n"
    assert on_host(devices, model=replace(FINE, weight_bytes=400 * MIB)) == []
    assert only(on_host("devices: [{id: 'cpu:0', spare: true}]\n")).code == Code.DEVICE_SPARE
