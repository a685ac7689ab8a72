"""What of a daemon's plan stands in a status."""

from halogen_operator import answers
from halogen_operator.plan_only import asked, plan
from halogen_operator.pods import PodState
from support.operator_values import fresh, problem, serving, wanted

from halogend.config.custom_resource import tupled
from halogend.config.custom_resource_status import PlanStatus

NEW = wanted(max_batch=7, generation=2)
ANSWER = {
    "outcome": "changes",
    "revision": {"current": "0123456789ab", "planned": NEW.revision[:12]},
    "problems": [],
    "models": [
        {
            "model": "chat",
            "action": "replace",
            "strategy": "overlap",
            "steps": ["load", "switch", "drain", "reclaim"],
            "changes": [
                {"field": "max_batch", "old": 64, "new": 7, "class": "live"},
                {"field": "model", "old": "/models/a", "new": None, "class": "generation"},
            ],
            "load": {"expected_s": 12.34},
            "drain": {"limit_s": 30.0, "running": 3, "may_outlive": 2},
        }
    ],
    "server_changes": [],
    "warnings": ["link 0-1 is slow"],
}


def told(answer):
    return answers.read(answer, answers.Plan)


def test_what_an_approver_reads() -> None:
    found = plan(NEW, serving(NEW), told(ANSWER), replaces_pods=False)
    PlanStatus.model_validate(tupled(found))
    assert found == {
        "generation": 2,
        "pod": "chat-a",
        "outcome": "changes",
        "current": "0123456789ab",
        "planned": NEW.revision[:12],
        "action": "replace",
        "strategy": "overlap",
        "steps": ["load", "switch", "drain", "reclaim"],
        "changes": [
            {"field": "max_batch", "old": "64", "new": "7", "apply": "live"},
            {"field": "model", "old": "/models/a", "apply": "generation"},
        ],
        "replacesPods": False,
        "loadSeconds": 12.3,
        "warnings": [
            "link 0-1 is slow",
            "2 running requests may not be done when the drain ends, after 30 s",
        ],
    }


def test_a_plan_that_would_be_rejected_says_where() -> None:
    answer = {"outcome": "rejected", "problems": [problem("models[0].model", message="no such folder", hint="")]}
    found = plan(NEW, serving(NEW), told(answer), replaces_pods=False)
    assert (found["outcome"], found["problems"]) == ("rejected", ["spec.model: HCF-1019: no such folder"])


def test_nobody_can_be_asked() -> None:
    found = plan(NEW, None, None, replaces_pods=True, trouble="the Deployment would be made")
    PlanStatus.model_validate(tupled(found))
    assert (found["outcome"], found["replacesPods"]) == ("changes", True)
    assert found["warnings"][0].startswith("no pod answers")
    assert "pod" not in found


def test_a_pod_that_was_asked_and_did_not_answer_is_not_the_plans() -> None:
    """A plan with a pod is not made again."""
    found = plan(NEW, serving(NEW), None, replaces_pods=False, trouble="chat-a did not answer in time")
    PlanStatus.model_validate(tupled(found))
    assert "pod" not in found
    assert found["warnings"] == ["chat-a did not answer in time"]


def test_who_is_asked() -> None:
    silent = PodState(serving(NEW, "chat-0").pod, None, "no answer")
    ready = serving(NEW, "chat-b")
    assert asked([silent, fresh("chat-a"), ready]) is ready
    unready = fresh("chat-a")
    assert asked([silent, unready]) is unready
    assert asked([silent]) is asked([]) is None


def test_it_is_bounded() -> None:
    changes = [{"field": f"f{number}", "old": "x" * 5000, "new": number, "class": "live"} for number in range(200)]
    answer = {**ANSWER, "models": [{**ANSWER["models"][0], "changes": changes}], "problems": [problem("")] * 50}
    found = plan(NEW, serving(NEW), told(answer), replaces_pods=False)
    PlanStatus.model_validate(tupled(found))
    assert (len(found["changes"]), len(found["problems"])) == (64, 16)
