"""Plans: a pure function of what runs, the document and the facts."""

import shutil

import pytest
import yaml
from support import tiny_hf
from support.tiny_models import tiny_llama

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.config import schema
from halogend.config.facts import DeviceFacts
from halogend.config.fields import Apply, leaf_fields
from halogend.config.parse import parse
from halogend.config.rules import check
from halogend.control.desired import make_targets
from halogend.control.facts import gather
from halogend.control.machine import Machine
from halogend.control.plan import make_plan
from halogend.control.present import Present
from halogend.control.receipts import ModelAction
from halogend.control.strategy import Now, decide

GIB = 1 << 30
EMPTY = schema.Document()


def machine_with(memory_bytes):
    return Machine(
        cores=2, has_bf16=True, devices=(DeviceFacts(id="cpu:0", memory_bytes=memory_bytes, aliases=("cpu",)),)
    )


@pytest.fixture
def world(tmp_path):
    """A folder with a model `a.gguf`, an equal `b.gguf` and a template; relative names in documents."""
    tiny_llama(tmp_path / "a.gguf")
    shutil.copy(tmp_path / "a.gguf", tmp_path / "b.gguf")
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    return tmp_path


def document_of(world, *models, **top):
    """`models` are entries of the full form; a missing `model` is a.gguf."""
    entries = [{"model": str(world / "a.gguf"), **model} for model in models]
    text = yaml.safe_dump({"apiVersion": schema.API_VERSION, "allow_empty": True, "models": entries, **top})
    parsed = parse(text.encode(), "c.yaml", {})
    assert parsed.problems == ()
    return parsed


def targets_of(world, *models, memory=64 * GIB, **top):
    parsed = document_of(world, *models, **top)
    gathered = gather(parsed.document, machine_with(memory))
    assert check(parsed, gathered.facts) == ()
    return make_targets(parsed.document, gathered)


def actions(old, new):
    return {each.model: each.action for each in make_plan(old, new, (EMPTY, EMPTY)).models}


BASE = {"name": "m", "max_batch": 8, "kv_cache_bytes": "64MiB"}
OTHER_VALUE = {
    "models[].aliases": ["other"],
    "models[].path_alias": True,
    "models[].weight": 2.0,
    "models[].model": "b.gguf",
    "models[].load_format": "gguf",
    "models[].device": "cpu:0",
    "models[].precision": "fp32",
    "models[].kernels.flash_attention": False,
    "models[].kernels.backend": "reference",
    "models[].kernels.compile": "never",
    "models[].kernels.cache_dir": "/kernels",
    "models[].mmap_threshold": 0.5,
    "models[].load_thread_num": 1,
    "models[].load.progress_timeout_s": 5.0,
    "models[].kv_cache_ratio": 0.5,
    "models[].kv_cache_bytes": "96MiB",
    "models[].kv_cache_dtype": "fp32",
    "models[].kv_block_pool.autoscale": False,
    "models[].kv_block_pool.min_free_ratio": 0.1,
    "models[].kv_block_pool.min_tokens": 4096,
    "models[].kv_block_pool.max_tokens": 1024,
    "models[].watermarks": "off",
    "models[].watermarks.soft": 0.5,
    "models[].watermarks.hard": 0.95,
    "models[].eviction.policy": "priority_lru",
    "models[].cache_scope": "shared",
    "models[].max_batch": 9,
    "models[].max_queue": 9,
    "models[].max_queue_tokens": 9_999,
    "models[].queue_timeout_ms": 9,
    "models[].request_timeout_ms": 60_001,
    "models[].max_prompt_len": 99,
    "models[].max_decode_len": 99,
    "models[].max_model_len": 199,
    "models[].prefill_chunk": 9,
    "models[].prefill_timeout_ms": 0,
    "models[].max_gap_ms": 9,
    "models[].long_prompt": "off",
    "models[].long_prompt.threshold": 9,
    "models[].long_prompt.max_concurrent": 2,
    "models[].sampling.temperature": 0.9,
    "models[].sampling.top_p": 0.9,
    "models[].sampling.top_k": 9,
    "models[].sampling.min_p": 0.1,
    "models[].sampling.repetition_penalty": 1.1,
    "models[].sampling.presence_penalty": 0.1,
    "models[].sampling.frequency_penalty": 0.1,
    "models[].chat_template": "t.jinja",
    "models[].warmup.kernels": False,
    "models[].warmup.prompt": "Hi",
    "models[].reload.strategy": "overlap",
    "models[].reload.drain_timeout_s": 7.0,
    "models[].engine_version": "0.15.2",
    "models[].exec_mode": "data_parallel",
    "models[].probation": {"s": 60.0},
}
ELSEWHERE = {"models[].load.verify"}  # another value needs a v2 checkpoint: test_v2_plans
IN_A_SECTION = {f"models[].probation.{key}" for key in schema.ProbationConfig.model_fields} | {  # come as a whole
    f"models[].eviction.sessions[].{key}" for key in ("class", "priority", "pin_quota", "ttl_s")
}
FIELDS = {field.path: field for field in leaf_fields(schema.Document) if field.path.startswith("models[]")}


def changed(world, path):
    value = OTHER_VALUE[path]
    if path in ("models[].model", "models[].chat_template"):
        value = str(world / value)
    entry = dict(BASE)
    if path == "models[].kv_cache_ratio":
        del entry["kv_cache_bytes"]
    if path == "models[].exec_mode":
        entry["device"] = "cpu:0"  # it wants to be told
    *sections, last = path.removeprefix("models[].").split(".")
    for section in sections:
        entry = entry | {section: {last: value}}
    return entry if sections else entry | {last: value}


def test_every_field_of_a_model_is_covered_here():
    assert set(OTHER_VALUE) | ELSEWHERE | IN_A_SECTION | {"models[].name"} == set(FIELDS)


@pytest.mark.parametrize("path", sorted(OTHER_VALUE))
def test_the_class_of_a_field_decides_what_happens(world, path):
    old, new = targets_of(world, BASE), targets_of(world, changed(world, path))
    plan = make_plan(old, new, (None, EMPTY))
    (model,) = plan.models
    expected = ModelAction.REPLACE if FIELDS[path].apply is Apply.GENERATION else ModelAction.UPDATE
    assert model.action is expected
    field = path.removeprefix("models[].")
    assert {change["field"]: change["class"] for change in model.changes}[field] == FIELDS[path].apply


GOLD = {"class": "gold", "priority": 10, "pin_quota": 0.2, "ttl_s": 900}
CLASSES = {
    "eviction.sessions[gold]": [],
    "eviction.sessions[gold].priority": [GOLD | {"priority": 9}],
    "eviction.sessions[gold].pin_quota": [GOLD | {"pin_quota": 0.1}],
    "eviction.sessions[gold].ttl_s": [GOLD | {"ttl_s": 9}],
    "eviction.sessions[silver]": [GOLD, {"class": "silver"}],
}


@pytest.mark.parametrize("field", CLASSES)
def test_session_classes_are_live_and_told_by_name(world, field):
    old, new = (
        targets_of(world, BASE | {"eviction": {"policy": "priority_lru", "sessions": sessions}})
        for sessions in ([GOLD], CLASSES[field])
    )
    (model,) = make_plan(old, new, (None, EMPTY)).models
    assert model.action is ModelAction.UPDATE
    assert [(each["field"], each["class"]) for each in model.changes] == [(field, Apply.LIVE)]
    assert old["m"].spec.engine.limits.policy != new["m"].spec.engine.limits.policy


POLICIES = sorted(
    path
    for path in OTHER_VALUE
    if path.split(".")[1] in ("kv_block_pool", "watermarks", "eviction", "cache_scope", "long_prompt")
    or path.endswith(("max_queue_tokens", "prefill_timeout_ms", "max_gap_ms"))
)


@pytest.mark.parametrize("path", POLICIES)
def test_every_policy_reaches_the_engine_s_limits_and_nothing_else_of_the_processes(world, path):
    old, new = (targets_of(world, entry)["m"].spec for entry in (BASE, changed(world, path)))
    assert old.engine.limits != new.engine.limits
    assert old.text == new.text


def test_the_pool_s_bounds_are_its_floor_and_its_target(world):
    def sizes(**bounds):
        (target,) = targets_of(world, BASE | {"kv_block_pool": bounds}).values()
        limits = target.spec.engine.limits
        assert target.floor_bytes == target.spec.engine.pool_floor_bytes == limits.policy.min_pool_bytes
        assert target.holding.kv_bytes == limits.pool_bytes
        return target.floor_bytes, target.holding.kv_bytes

    (one_request, share), (wider, same) = sizes(), sizes(min_tokens=1024)
    assert one_request < wider < same == share
    assert sizes(min_tokens=16)[0] == one_request  # it must hold one full request all the same
    assert sizes(max_tokens=1024) == (one_request, wider)


def test_the_same_document_is_an_empty_plan(world):
    old = targets_of(world, BASE)
    plan = make_plan(old, targets_of(world, BASE), (EMPTY, EMPTY))
    assert [(model.action, model.changes) for model in plan.models] == [(ModelAction.KEEP, ())]
    assert plan.server_changes == ()
    assert plan.problems == ()


def test_models_that_come_and_go(world):
    old = targets_of(world, {"name": "x"}, {"name": "y"})
    new = targets_of(world, {"name": "y"}, {"name": "z"})
    assert actions(old, new) == {"y": ModelAction.KEEP, "z": ModelAction.CREATE, "x": ModelAction.REMOVE}


def test_the_same_path_with_other_bytes_is_a_new_generation_and_says_so(world):
    old = targets_of(world, BASE)
    tiny_llama(world / "new.gguf", seed=1)
    (world / "new.gguf").rename(world / "a.gguf")
    plan = make_plan(old, targets_of(world, BASE), (None, EMPTY))
    (model,) = plan.models
    assert model.action is ModelAction.REPLACE
    (change,) = model.changes
    assert change["field"] == f"input {world / 'a.gguf'}"


def test_an_edited_template_is_live(world):
    entry = BASE | {"chat_template": str(world / "t.jinja")}
    old = targets_of(world, entry)
    (world / "t.jinja").write_text("{{ messages[-1].content }}")
    assert actions(old, targets_of(world, entry)) == {"m": ModelAction.UPDATE}


def test_listener_fields_are_named(world):
    old, new = (EMPTY.model_copy(update={"server": schema.ServerConfig(port=port)}) for port in (8000, 8001))
    plan = make_plan({}, {}, (old, new))
    assert [(change["field"], change["class"]) for change in plan.server_changes] == [("server.port", Apply.LISTENER)]


def test_a_newcomer_that_does_not_fit_beside_the_old_one_is_refused_with_the_numbers(world):
    entry = {"name": "m", "kv_cache_ratio": 1.0, "max_batch": 4096}
    old = targets_of(world, entry, memory=400 << 20)
    held = {"m#1": old["m"].holding}
    now = Now(old, held, {"m": Present(old["m"], "m#1", 0)})
    new = targets_of(world, entry | {"precision": "fp32"}, memory=400 << 20)
    (problem,) = decide(now, new, (EMPTY, EMPTY))[0].problems
    assert problem.code == "HRT-1004"
    assert "MiB" in problem.message
    assert "reload.strategy: replace" in problem.hint
    replace = targets_of(world, entry | {"precision": "fp32", "reload": {"strategy": "replace"}}, memory=400 << 20)
    assert decide(now, replace, (EMPTY, EMPTY))[0].problems == ()


def test_models_of_a_device_share_the_default_ratio(world):
    alone = targets_of(world, {"name": "x", "max_batch": 4096}, memory=5 * GIB // 4)
    both = targets_of(world, {"name": "x", "max_batch": 4096}, {"name": "y", "max_batch": 4096}, memory=5 * GIB // 4)
    budget = 5 * GIB // 4 - sum(each.holding.weights_bytes + each.holding.working_bytes for each in both.values())
    assert both["x"].holding.kv_bytes == both["y"].holding.kv_bytes == int(budget * 0.375)
    assert alone["x"].holding.kv_bytes > both["x"].holding.kv_bytes


def test_the_engine_hears_the_document_s_limit_and_the_checkpoint_s(world):
    (short,) = targets_of(world, BASE | {"max_model_len": 100}).values()
    (whole,) = targets_of(world, BASE).values()
    assert short.spec.engine.limits.max_model_len == short.spec.text.limits.max_model_len == 100
    assert short.spec.engine.max_model_len == whole.spec.engine.max_model_len == whole.spec.engine.limits.max_model_len
    assert whole.spec.engine.max_model_len > 100


def test_a_load_says_what_it_reads_and_holds_and_what_is_rounded_again(world):
    tiny_llama(world / "q.gguf", kind="Q4_1")
    entry = BASE | {"model": str(world / "q.gguf"), "kv_cache_dtype": "bf16"}
    old, new = targets_of(world, entry), targets_of(world, entry | {"precision": "int4"})
    (model,) = make_plan(old, new, (None, EMPTY)).models
    load = model.load.view()
    assert (load["stored"], load["precision"], load["requantised"]) == ("Q4_1", "int4", True)
    assert 0 < load["read_bytes"] <= (world / "q.gguf").stat().st_size * 2  # a tied table is read twice
    assert load["held_bytes"] == new["m"].holding.weights_bytes < old["m"].holding.weights_bytes
    assert load["expected_s"] > 0
    (kept,) = make_plan(old, old, (None, EMPTY)).models
    assert kept.load is None
    (plain,) = targets_of(world, BASE | {"precision": "int8"}).values()
    assert not plain.load.requantised  # F32 is rounded for the first time


def test_groups_that_do_not_fill_the_columns_are_refused_by_name(world):
    tiny_llama(world / "odd.gguf", hidden=48, heads=4, kv_heads=2, head_dim=12)
    parsed = document_of(world, BASE | {"model": str(world / "odd.gguf"), "precision": "int4"})
    (problem,) = check(parsed, gather(parsed.document, machine_with(8 * GIB)).facts)
    assert problem.code == "HCK-1006"
    for word in ("int4", "'blk.0.attn_q'", "48"):
        assert word in problem.message


def test_a_live_length_that_crosses_the_original_context_is_a_new_generation(world):
    tiny = tiny_hf.make("phi3-longrope", world / "phi")
    original = tiny.config["original_max_position_embeddings"]
    entry = BASE | {"model": str(tiny.path)}
    within, edge, beyond = (
        targets_of(world, entry | {"max_model_len": length}) for length in (original - 1, original, original + 1)
    )
    assert actions(within, edge) == {"m": ModelAction.UPDATE}
    assert actions(edge, beyond) == {"m": ModelAction.REPLACE}
    (model,) = make_plan(edge, beyond, (None, EMPTY)).models
    assert {change["class"] for change in model.changes} == {Apply.LIVE, Apply.GENERATION}
    assert [each["m"].spec.engine.stretched for each in (edge, beyond)] == [False, True]


def test_a_default_that_makes_no_sense_can_be_overridden(world):
    tiny = tiny_hf.make("llama", world / "odd")
    (tiny.path / "generation_config.json").write_text('{"temperature": 9, "top_p": 0.5}')
    entry = BASE | {"model": str(tiny.path)}
    parsed = document_of(world, entry)
    (problem,) = check(parsed, gather(parsed.document, machine_with(8 * GIB)).facts)
    assert "set sampling.temperature" in problem.message
    (target,) = targets_of(world, entry | {"sampling": {"temperature": 0.3}}).values()
    assert (target.settings.sampling.temperature, target.settings.sampling.top_p) == (0.3, 0.5)


def test_a_pool_is_for_the_longest_request_that_may_come(world):
    """Limits on prompt and answer bound it as max_model_len does."""
    entry = {"name": "m", "kv_cache_bytes": 200_000, "max_prompt_len": 60, "max_decode_len": 20, "max_batch": 4}
    (target,) = targets_of(world, entry).values()
    assert target.spec.text.limits.max_model_len == target.spec.engine.limits.max_model_len == 80
    assert target.holding.kv_bytes <= 200_000


def test_working_memory_grows_with_the_longest_context_and_the_batch(world):
    (small,) = targets_of(world, BASE).values()
    (wide,) = targets_of(world, BASE | {"max_batch": 4096, "kv_cache_bytes": "64MiB"}).values()
    geometry = open_checkpoint(world / "a.gguf").geometry
    values = small.spec.engine.limits.max_model_len * 2 * geometry.kv_heads * geometry.head_dim
    gathered = {batch: min(8 << 20, batch * values) * 2 for batch in (8, 4096)}  # up to the bound of a group
    logits = {batch: batch * geometry.vocab * 4 for batch in (8, 4096)}
    assert wide.holding.working_bytes - small.holding.working_bytes == (
        logits[4096] - logits[8] + gathered[4096] - gathered[8]
    )
