"""A daemon's answers: what the operator takes from them."""

import pytest
from halogen_operator import answers
from halogen_operator.engine_view import ReceiptView, place_in_spec, problem_text
from support.operator_values import engine, model, problem, receipt, view, wanted

OLD, NEW = wanted(), wanted(max_batch=7, generation=2)


def of(record):
    return ReceiptView.of(answers.read(record, answers.Receipt))


def told(problem):
    return problem_text(answers.read(problem, answers.Problem))


def test_what_serves() -> None:
    view = engine(NEW, receipts=[receipt(NEW, number=3), receipt(OLD, number=2)])
    assert view.receipt is not None
    assert (view.receipt.id, view.receipt.generation, view.receipt.revision) == ("r3", 2, NEW.revision[:12])
    assert (view.desired, view.active, view.served) == (NEW.revision[:12],) * 3
    assert (view.is_serving, view.document) == (True, NEW.document)


@pytest.mark.parametrize(
    ("active", "models", "served"),
    [
        (OLD, {"chat": model(loaded=(1, 4))}, OLD),
        (NEW, {"chat": model(loaded=(1, 4))}, NEW),
        (OLD, {"chat": model()}, OLD),
        (OLD, {"chat": model("restarting", loaded=(0, 0))}, None),
        (OLD, {"chat": model("failed", trouble="no memory")}, None),
        (OLD, {}, None),
    ],
)
def test_what_does_not_serve_what_is_asked_for(active, models, served) -> None:
    view = engine(NEW, active=active, models=models)
    assert not view.is_serving
    assert view.served == (served and served.revision[:12])


def test_a_model_of_another_name_that_drains_is_in_nobodys_way() -> None:
    renamed = engine(NEW, models={"chat": model(), "talk": model("removed")})
    assert renamed.is_serving
    assert not engine(NEW, models={"talk": model("removed")}).is_serving


def test_three_answers_of_two_moments_are_never_taken_for_serving() -> None:
    """The document changed between the answers: the status is of the old one, the text of the new one."""
    status = {
        "revision": {"desired": OLD.revision[:12], "active": OLD.revision[:12]},
        "settled": True,
        "models": {"chat": model()},
    }
    seen = view(status, NEW.document, NEW.revision, [])
    assert not seen.is_serving
    assert (seen.desired, seen.served) == (NEW.revision[:12], OLD.revision[:12])


def test_a_daemon_without_a_document() -> None:
    view = engine(None, models={})
    assert (view.desired, view.document, view.is_serving, view.served) == (None, None, False, None)


def test_progress_is_told_in_steps() -> None:
    shown = [
        engine(NEW, models={"chat": model("loading", loaded=(done, 1000))}).models[0] for done in (0, 49, 431, 1000)
    ]
    assert [each.percent for each in shown] == [0, 0, 40, 100]
    assert all(each.is_loading for each in shown)
    assert engine(NEW, models={"chat": model(loaded=(7, 0))}).models[0].percent == 0


def test_a_refused_push_says_where_in_the_spec() -> None:
    view = of(receipt(NEW, "rejected", problems=[problem("models[0].watermarks.soft")]))
    assert view.is_refused
    assert view.why == "spec.watermarks.soft: HCF-1019: soft must be below hard (lower it)"
    assert not view.is_interrupted


def test_a_failed_push_says_what_failed() -> None:
    view = of(receipt(NEW, "failed", models=[{"model": "chat", "error": "no memory"}, {"model": "x", "error": None}]))
    assert (view.is_refused, view.why) == (True, "chat: no memory")
    cut_off = of(receipt(NEW, "failed", problems=[problem("", code="HRT-1019")]))
    assert cut_off.is_interrupted


@pytest.mark.parametrize(
    ("outcome", "is_open", "is_refused"),
    [
        (None, True, False),
        ("applied", False, False),
        ("unchanged", False, False),
        ("superseded", False, False),
        ("rejected", False, True),
        ("failed", False, True),
        ("partially_applied", False, True),
        ("rolled_back", False, True),
    ],
)
def test_how_a_push_ended(outcome, is_open, is_refused) -> None:
    view = of(receipt(NEW, outcome))
    assert (view.is_open, view.is_refused) == (is_open, is_refused)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("models[0].watermarks.soft", "spec.watermarks.soft"),
        ("models[0].device[1]", "spec.device[1]"),
        ("models[0]", "spec"),
        ("server.auth.keys[0].file", "spec.auth.keys[0].file"),
        ("server.port", "spec"),
        ("devices[0].memory", "spec"),
        ("models[1].name", "spec"),
        ("", "spec"),
    ],
)
def test_places_in_the_spec(path: str, place: str) -> None:
    assert place_in_spec(path) == place


def test_a_problem_without_a_hint_and_a_very_long_one() -> None:
    assert told(problem("models[0].model", hint="")) == "spec.model: HCF-1019: soft must be below hard"
    assert len(told(problem("models[0].model", message="x" * 5000))) == 1024


def test_a_hold_is_told_with_its_time() -> None:
    view = engine(NEW, hold={"since": 1_777_896_000.0, "by": "uid:0", "put_off": False})
    assert view.hold == "since 2026-05-04 12:00:00 UTC by uid:0"
