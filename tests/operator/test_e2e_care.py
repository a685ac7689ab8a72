"""What is asked of a HalogenModel beside edits: rest, a plan, keys, a new admin key, an end that cuts nobody off."""

import asyncio
import base64
import signal

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.cluster import cluster, condition, conditions, secret
from support.controllers import is_ready
from support.pod_traffic import ask, daemon_status

A, B = "/models/a.gguf", "/models/b.gguf"
PLAN_ONLY = "halogen.dev/plan-only"
WRITES = {"apply", "create", "delete", "patch"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def counted(started, metric, **labels):
    """Sum of a counter of the operator's over all samples with one of these values of each label."""
    families = text_string_to_metric_families(started.metrics.render().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == metric]
    return sum(s.value for s in samples if all(s.labels[name] in values for name, values in labels.items()))


async def path_of(here):
    (pod,) = await here.pods()
    return (await daemon_status(here.client, pod, "chat"))["models"]["chat"]["serving"]["path"]


async def annotate(here, value):
    await here.client.merge("HalogenModel", "chat", {"metadata": {"annotations": {PLAN_ONLY: value}}})


async def test_at_rest_nothing_is_written_a_plan_changes_nothing_and_an_end_cuts_nobody_off(tmp_path, two_models):
    async with cluster(tmp_path, two_models) as here, here.operator() as started:
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        await here.eventually(lambda: _looked(started, 1))  # what a settled pod may still have to tell
        writes = counted(started, "halogen_operator_api_requests_total", verb=WRITES)
        assert writes >= 6
        version = (await here.client.get("HalogenModel", "chat"))["metadata"]["resourceVersion"]
        looks = counted(started, "halogen_operator_reconciles_total")
        await here.eventually(lambda: _looked(started, looks + 5))
        assert counted(started, "halogen_operator_api_requests_total", verb=WRITES) == writes
        assert (await here.client.get("HalogenModel", "chat"))["metadata"]["resourceVersion"] == version

        await annotate(here, "true")
        await here.edit("chat", model=B)
        model = await here.until("chat", lambda model: "plan" in model["status"])
        assert (model["status"]["plan"]["action"], model["status"]["plan"]["outcome"]) == ("replace", "changes")
        assert conditions(model)["Ready"] == "False/PlanOnly"
        assert await path_of(here) == A
        await annotate(here, None)
        model = await here.until_settled("chat", 2)
        assert "plan" not in model["status"]
        assert await path_of(here) == B

        async with aiohttp.ClientSession() as session:
            (url,) = here.endpoints()
            answer = asyncio.create_task(ask(session, url, "chat", "alpha", 300))
            await here.eventually(lambda: _runs(here))
            await here.client.delete("HalogenModel", "chat")
            await here.eventually(lambda: _is_ending(here))
            assert not answer.done()
            assert await answer
        await here.until_gone()


async def _looked(started, count):
    return counted(started, "halogen_operator_reconciles_total") >= count


async def _runs(here):
    (pod,) = await here.pods()
    return (await daemon_status(here.client, pod, "chat"))["models"]["chat"]["serving"]["requests"] > 0


async def _is_ending(here):
    return not here.endpoints()


async def code_of(here, key):
    """What the model's list answers to this key."""
    (url,) = here.endpoints()
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/v1/models") as answer:
        return answer.status


async def test_keys_come_from_secrets_and_change_there_and_a_broken_admin_key_is_made_anew(tmp_path, two_models):
    """Without another pod, container or generation."""
    keys = [{"name": "team", "secretKeyRef": {"name": "keys", "key": "team"}}]
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.client.create("Secret", secret("keys", team="first-key-of-the-team"))
        await here.apply("chat", model=A, auth={"keys": keys})
        await here.until_settled("chat", 1)
        (pod,) = await here.pods()
        assert await code_of(here, "first-key-of-the-team") == 200
        assert await code_of(here, "second-key-of-the-team") == 401
        await here.client.merge("Secret", "keys", {"data": secret("", team="second-key-of-the-team")["data"]})
        await here.eventually(lambda: _opens(here, "second-key-of-the-team"))

        before = (await here.client.get("Secret", "chat-admin"))["data"]
        await here.client.merge("Secret", "chat-admin", {"data": {"admin.key": base64.b64encode(b"x").decode()}})
        await here.eventually(lambda: _made_anew(here, before))
        await here.eventually(lambda: _told(here, "SecretBroken"))  # at the end of the look that made it anew
        generation = await here.edit("chat", max_batch=5)
        model = await here.until_settled("chat", generation)
        assert condition(model, "Degraded")["status"] == "False"
        (same,) = await here.pods()
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert same["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_secret_that_is_not_there_is_waited_for_and_where_to_look_is_told(tmp_path, two_models):
    keys = [{"name": "team", "secretKeyRef": {"name": "keys", "key": "team"}}]
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A, auth={"keys": keys}, update={"progressDeadlineSeconds": 10})
        model = await here.until("chat", lambda model: condition(model, "Stalled").get("status") == "True")
        assert conditions(model)["Stalled"] == "True/ProgressDeadlineExceeded"
        assert "`kubectl describe pod` names what it waits for" in condition(model, "Stalled")["message"]
        await here.client.create("Secret", secret("keys", team="first-key-of-the-team"))
        await here.until_settled("chat", 1)


async def _opens(here, key):
    return await code_of(here, key) == 200


async def _told(here, reason):
    return ("Warning", reason) in await here.events()


async def _made_anew(here, before):
    data = (await here.client.get("Secret", "chat-admin"))["data"]
    return len(data["admin.key"]) == len(before["admin.key"]) and data["admin.key"] != before["admin.key"]


async def test_who_is_in_a_pod_can_ask_its_daemon_and_hold_changes(tmp_path, two_models):
    """With the words of the remedies: `halogend status`, `hold`, `resume`."""
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        (run,) = here.kubelet.runs.values()
        status, said = await run.execute("status")
        assert status == 0, said
        assert "chat   serving" in said
        status, said = await run.execute("hold")
        assert status == 0, said
        generation = await here.edit("chat", max_batch=5)
        model = await here.until("chat", lambda model: conditions(model).get("Stalled") == "True/ChangesHeld")
        assert model["status"]["observedGeneration"] == generation
        assert condition(model, "Degraded")["status"] == "True"
        assert "key:halogen-operator" in condition(model, "Stalled")["message"]
        status, said = await run.execute("resume")
        assert status == 0, said
        await here.until_settled("chat", generation)


async def test_pods_come_back_without_an_operator_and_edits_wait_for_it(tmp_path, two_models):
    """A pod that is deleted, or whose daemon is killed, starts with what a pod accepted last."""
    async with cluster(tmp_path, two_models) as here:
        async with here.operator():
            await here.apply("chat", model=A)
            await here.until_settled("chat", 1)
        (pod,) = await here.pods()
        await here.client.delete("Pod", pod["metadata"]["name"])
        await here.eventually(lambda: _is_another(here, pod))
        assert await path_of(here) == A
        (run,) = here.kubelet.runs.values()
        run.process.send_signal(signal.SIGKILL)
        await here.eventually(lambda: _is_up_again(here))
        assert await path_of(here) == A
        generation = await here.edit("chat", model=B)
        async with here.operator():
            await here.until_settled("chat", generation)
            assert await path_of(here) == B


async def _is_another(here, pod):
    found = [each for each in await here.pods() if each["metadata"]["uid"] != pod["metadata"]["uid"]]
    return len(here.kubelet.runs) == 1 and found and is_ready(found[0])


async def _is_up_again(here):
    (pod,) = await here.pods()
    return is_ready(pod) and pod["status"]["containerStatuses"][0]["restartCount"] == 1
