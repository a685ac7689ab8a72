"""Which pods are handed the document: each standing of a pod, and what a walk does with it."""

from dataclasses import replace

import pytest
import yaml
from halogen_operator.pods import PodState
from halogen_operator.rollout import MOST_ATTEMPTS, Standing, decide, most_unavailable, standing
from support.operator_values import engine, fresh, model, pod, problem, receipt, serving, wanted

OLD, NEW = wanted(), wanted(max_batch=7, generation=2)
INTERRUPTED = {"problems": [problem("", code="HRT-1019")]}


def three(**spec):
    spec = {"generation": 2, **spec}
    return wanted(max_batch=7, replicas=3, **spec)


def ready(view, name="chat-a", **more):
    return PodState(pod(name, **more), view)


def test_a_pod_that_serves_it_needs_nothing() -> None:
    found = decide(NEW, [serving(NEW)])
    assert (found.push, found.serving, found.is_done, found.waits_for) == ((), ("chat-a",), True, "")


def test_a_pod_that_was_just_started_is_handed_it() -> None:
    found = decide(NEW, [fresh()])
    assert (found.push, found.is_done) == (("chat-a",), False)
    assert found.waits_for == "chat-a to take the document"


def test_a_daemon_without_any_document_is_handed_it() -> None:
    assert decide(NEW, [ready(engine(None, models={}), ready=False)]).push == ("chat-a",)


def test_one_after_another_and_the_next_when_it_serves() -> None:
    there = [serving(OLD, name) for name in ("chat-a", "chat-b", "chat-c")]
    assert decide(three(), there).push == ("chat-a",)
    changing = ready(engine(three(), active=OLD, models={"chat": model(loaded=(43, 100))}), "chat-a")
    found = decide(three(), [changing, *there[1:]])
    assert (found.push, found.serving) == ((), ())
    assert found.waits_for == "chat-a to serve: weights, 40 %"
    found = decide(three(), [serving(three(), "chat-a"), *there[1:]])
    assert (found.push, found.serving, found.is_done) == (("chat-b",), ("chat-a",), False)


def test_a_push_that_is_not_accepted_yet_is_not_sent_again() -> None:
    under_way = engine(OLD, receipts=[receipt(NEW, None), receipt(OLD)])
    assert standing(NEW, ready(under_way)) is Standing.CHANGES
    assert decide(NEW, [ready(under_way)]).push == ()


@pytest.mark.parametrize(("limit", "count"), [(2, 2), ("50%", 1), ("100%", 3), ("10%", 1), (9, 3)])
def test_as_many_at_once_as_may_be_unavailable(limit, count) -> None:
    wants = three(update={"maxUnavailable": limit})
    found = decide(wants, [serving(OLD, name) for name in ("chat-a", "chat-b", "chat-c")])
    assert len(found.push) == count == min(3, most_unavailable(wants))


def test_unready_pods_are_all_handed_it_and_take_no_place() -> None:
    there = [fresh("chat-a"), fresh("chat-b"), serving(OLD, "chat-c"), serving(OLD, "chat-d")]
    assert decide(wanted(max_batch=7, generation=2, replicas=4), there).push == ("chat-a", "chat-b", "chat-c")


def test_a_pod_that_the_change_made_unready_takes_its_place() -> None:
    """Under `strategy: replace` a pod serves nothing while it loads: it is one of those that answer all the same."""
    replacing = ready(engine(three(), active=OLD, models={"chat": model("restarting", loaded=(1, 9))}), ready=False)
    assert decide(three(), [replacing, serving(OLD, "chat-b"), serving(OLD, "chat-c")]).push == ()


def test_a_pod_whose_daemon_does_not_answer_may_be_in_a_change() -> None:
    silent = PodState(pod("chat-a"), None, "it did not answer in time")
    found = decide(three(), [silent, serving(OLD, "chat-b"), serving(OLD, "chat-c")])
    assert found.push == ()
    assert found.waits_for == "the daemon of chat-a: it did not answer in time"
    unready = PodState(pod("chat-a", ready=False), None, "refused")
    assert decide(three(), [unready, serving(OLD, "chat-b"), serving(OLD, "chat-c")]).push == ("chat-b",)


@pytest.mark.parametrize("outcome", ["rejected", "failed", "partially_applied", "rolled_back"])
def test_what_one_pod_refused_goes_to_no_other_that_has_something_to_lose(outcome) -> None:
    desired = OLD if outcome == "rejected" else three()
    refused = ready(engine(desired, active=OLD, receipts=[receipt(three(), outcome), receipt(OLD)]), "chat-b")
    loading = ready(engine(OLD, models={"chat": model("loading", loaded=(1, 9))}), "chat-c", ready=False)
    found = decide(three(), [serving(OLD, "chat-a"), refused, loading])
    assert found.push == ()
    assert found.rejected is refused
    assert found.waits_for == "another spec: chat-b refused this one"
    assert decide(three(), [refused, fresh("chat-a")]).push == ("chat-a",)


def test_what_was_refused_is_handed_in_again_with_a_new_generation() -> None:
    state = ready(engine(OLD, receipts=[receipt(NEW, "rejected")]))
    assert decide(NEW, [state]).push == ()
    assert decide(wanted(max_batch=8, generation=3), [state]).push == ("chat-a",)


def test_what_failed_and_is_asked_for_still_is_not_handed_in_again_by_another_generation() -> None:
    """The number of replicas was edited meanwhile: the text is the same."""
    failed = {"chat": model("failed", trouble="no memory")}
    state = ready(engine(NEW, active=OLD, models=failed, receipts=[receipt(NEW, "failed")]), ready=False)
    found = decide(wanted(max_batch=7, generation=3), [state])
    assert (found.push, found.rejected) == ((), state)


def test_the_same_text_is_not_handed_in_again_whatever_the_generation() -> None:
    found = decide(wanted(max_batch=7, generation=9), [serving(NEW)])
    assert (found.push, found.serving, found.is_done) == ((), ("chat-a",), True)


def test_two_quick_edits_the_last_one_stays_although_the_pod_starts_with_the_first() -> None:
    """The mount of the ConfigMap lagged: the daemon's own record says that it had ours, and it has it no more."""
    restarted = engine(OLD, receipts=[receipt(NEW, number=2), receipt(OLD)])
    assert decide(NEW, [ready(restarted, ready=False)]).push == ("chat-a",)
    assert decide(NEW, [ready(restarted)]).push == ("chat-a",)


def test_a_way_back_by_hand_is_undone_and_a_superseded_push_is_sent_again() -> None:
    assert decide(NEW, [ready(engine(OLD, receipts=[receipt(NEW)]))]).push == ("chat-a",)
    assert decide(NEW, [ready(engine(OLD, receipts=[receipt(NEW, "superseded")]))]).push == ("chat-a",)


def test_a_daemon_that_ended_during_the_change_is_handed_it_again_but_not_for_ever() -> None:
    ended = receipt(NEW, "failed", **INTERRUPTED)
    for times in range(1, MOST_ATTEMPTS):
        state = ready(engine(OLD, receipts=[ended] * times), ready=False)
        assert standing(NEW, state) is Standing.WANTS
    state = ready(engine(OLD, receipts=[ended] * MOST_ATTEMPTS), ready=False)
    assert standing(NEW, state) is Standing.REFUSED


def test_a_daemon_that_ended_and_starts_with_the_text_is_on_its_way() -> None:
    loading = {"chat": model("loading", loaded=(1, 9))}
    for record in (receipt(NEW, "failed", **INTERRUPTED), receipt(NEW, "failed")):
        state = ready(engine(NEW, active=OLD, models=loading, receipts=[record]), ready=False)
        assert standing(NEW, state) is Standing.CHANGES


def test_a_daemon_of_another_release_spells_the_document_otherwise() -> None:
    """Its record of our push has the revision that is asked for now: it has what we handed in."""
    spelt = wanted(max_batch=8)
    told = receipt(NEW, revision=spelt.revision)
    assert standing(NEW, ready(engine(spelt, receipts=[told]))) is Standing.SERVES
    assert standing(NEW, ready(engine(spelt, receipts=[{**told, "outcome": "failed"}]))) is Standing.SERVES
    changing = engine(spelt, active=OLD, receipts=[{**told, "outcome": None}])
    assert standing(NEW, ready(changing)) is Standing.CHANGES
    assert standing(wanted(max_batch=7, generation=3), ready(engine(spelt, receipts=[told]))) is Standing.WANTS


def test_pods_of_an_old_template_are_handed_nothing_for_they_lack_what_it_may_name() -> None:
    old = ready(engine(OLD), template="t1")
    found = decide(NEW, [old], "t2")
    assert (found.push, found.waits_for) == ((), "chat-a to be replaced")
    assert decide(NEW, [old], "t1").push == decide(NEW, [old]).push == ("chat-a",)
    kept = decide(NEW, [serving(NEW, template="t1")], "t2")
    assert (kept.serving, kept.is_done) == (("chat-a",), False)


def test_pods_with_too_few_devices_are_handed_nothing() -> None:
    two = wanted(device=["cuda:0", "cuda:1"], exec_mode="data_parallel", generation=2)
    assert standing(two, ready(engine(OLD), devices=1)) is Standing.UNFIT
    assert standing(two, ready(engine(OLD), devices=2)) is Standing.WANTS


def test_pods_on_their_way_out_do_not_count() -> None:
    leaving = serving(NEW, "chat-b", phase="Failed")
    found = decide(NEW, [serving(NEW, "chat-a"), leaving])
    assert (found.serving, found.is_done) == (("chat-a",), True)


def test_no_pod_and_too_many() -> None:
    none = decide(NEW, [])
    assert (none.is_done, none.waits_for) == (False, "pods: 1 to come")
    many = decide(NEW, [serving(NEW, "chat-a"), serving(NEW, "chat-b")])
    assert (many.is_done, many.waits_for) == (False, "pods: 1 to go")
    assert decide(wanted(replicas=0), []).is_done


def test_under_plan_only_nothing_is_handed_in() -> None:
    held = wanted(max_batch=7, generation=2, annotations={"halogen.dev/plan-only": "true"})
    assert decide(held, [serving(OLD), fresh("chat-b")]).push == ()


def test_a_newer_edit_goes_first_to_the_pod_that_is_in_a_change_already() -> None:
    newest = three(max_queue=3, generation=3)
    under_way = engine(three(), active=OLD, models={"chat": model(loaded=(1, 9))}, receipts=[receipt(three(), None)])
    there = [serving(OLD, "chat-a"), ready(under_way, "chat-b"), serving(OLD, "chat-c")]
    assert decide(newest, there).push == ("chat-b",)


def test_a_pod_takes_its_place_until_the_cluster_has_seen_that_it_serves_again() -> None:
    """Under `strategy: replace` it took no traffic; its daemon serves before the kubelet has looked."""
    there = [serving(three(), "chat-a", ready=False), serving(OLD, "chat-b"), serving(OLD, "chat-c")]
    assert decide(three(), there).push == ()
    assert decide(three(), [serving(three(), "chat-a"), *there[1:]]).push == ("chat-b",)


def test_what_one_pod_took_and_died_of_goes_to_no_other() -> None:
    died = {"chat": model("failed", trouble="HRT-1012: chat failed 6 times in a row")}
    there = [ready(engine(three(), models=died, receipts=[receipt(three())]), ready=False), serving(OLD, "chat-b")]
    found = decide(three(), there)
    assert (found.push, found.rejected) == ((), None)
    assert found.waits_for == "chat-a to serve: HRT-1012: chat failed 6 times in a row"
    assert decide(wanted(max_batch=8, replicas=3, generation=3), there).push == ("chat-a", "chat-b")


def test_the_next_pod_waits_until_the_one_before_has_passed_its_probation() -> None:
    """What fails under requests alone fails in one pod then."""
    tried = {"chat": model(probation={"left_s": 12.3})}
    there = [ready(engine(three(), models=tried, receipts=[receipt(three())]), "chat-a"), serving(OLD, "chat-b")]
    found = decide(three(), there)
    assert (found.push, found.serving) == ((), ("chat-a",))
    assert found.waits_for == "the turn of chat-b, after the probation of chat-a"
    assert decide(three(), [serving(three(), "chat-a"), there[1]]).push == ("chat-b",)
    assert decide(wanted(max_batch=7, generation=2), there[:1]).is_done


def of_an_older_release(of):
    """Without a field that a release before had not, and so counted otherwise."""
    plain = yaml.safe_load(of.document)
    del plain["reload"]["spare_worker"]
    theirs = "abcdef012345"
    return replace(serving(of).engine, document=yaml.safe_dump(plain, sort_keys=False), desired=theirs, active=theirs)


def test_another_generation_of_a_document_is_not_handed_in_again_to_an_older_release() -> None:
    """As an autoscaler makes them: the text is the same, whoever counts it."""
    scaled = wanted(max_batch=7, generation=3, replicas=2)
    found = decide(scaled, [ready(of_an_older_release(NEW)), fresh("chat-b")])
    assert (found.push, found.serving) == (("chat-b",), ("chat-a",))
    assert decide(wanted(max_batch=8, generation=3), [ready(of_an_older_release(NEW))]).push == ("chat-a",)
    unknown = replace(of_an_older_release(NEW), document="apiVersion: halogen.dev/v9\n")
    assert decide(scaled, [ready(unknown)]).push == ("chat-a",)
