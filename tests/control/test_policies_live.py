"""Every field of a model's policy reaches an engine that runs, and nothing else happens."""

from support.played.world import document, reached
from support.policies import OTHER

from halogend.config.fields import Apply, leaf_fields
from halogend.config.policy import EvictionConfig, LongPromptConfig, PoolConfig, WatermarkConfig
from halogend.config.schema import fields
from halogend.control.receipts import ModelAction, Outcome

SECTIONS = {
    "kv_block_pool": PoolConfig,
    "watermarks": WatermarkConfig,
    "eviction": EvictionConfig,
    "long_prompt": LongPromptConfig,
}
MORE = {"watermarks", "long_prompt", "cache_scope", "max_queue_tokens", "prefill_timeout_ms", "max_gap_ms"}


def test_every_field_of_the_policy_has_another_value_and_all_are_live():
    inside = {field.path for name, section in SECTIONS.items() for field in leaf_fields(section, name)}
    assert set(OTHER) - {"eviction.sessions[]"} == inside | MORE
    classes = {field.path.removeprefix("models[]."): field.apply for field in fields()}
    identity = {"eviction.sessions[].class"}
    assert {name for name in inside | MORE if classes[name] is not Apply.LIVE} == identity


async def test_every_policy_changes_on_a_running_engine_and_what_runs_goes_on(serving):
    there = await serving(kv_cache_bytes="64MiB")
    (replica,) = there.unit("a").serving.replicas
    held = there.stage.hold("generate", prompt="running")
    answer = await there.submit("a", "running", 3)
    running = await held.reached()
    running.say("token")
    seen = [replica.engine_limits]
    for name, fields_ in OTHER.items():
        receipt = await reached(there.edit(document(there.model("a", kv_cache_bytes="64MiB", **fields_))))
        (record,) = receipt.models.values()
        assert (receipt.outcome, record.action) == (Outcome.APPLIED, ModelAction.UPDATE), name
        assert {each["class"] for each in record.changes} == {"live"}, name
        assert replica.engine_limits != seen[-1], name
        seen.append(replica.engine_limits)
    assert there.unit("a").serving.replicas == [replica]
    assert there.stage.loads() == 1
    running.say("finish")
    events = [event async for event in answer.events()]
    assert events[-1].failure is None
