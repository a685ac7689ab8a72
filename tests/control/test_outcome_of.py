"""What became of a whole change: of its models, and of its listeners, keys and certificates where they changed."""

import pytest

from halogend.control.acceptance import Opened, outcome_of
from halogend.control.barrier import Barrier
from halogend.control.receipts import ModelAction, ModelRecord, Outcome, Receipt

OF_SERVER = ("server.port", "server.auth.keys.team", "server.tls.cert", "input /etc/halogen/tls.pem")


def outcome(models: str, field: str | None = None, *, has_server: bool = True) -> Outcome:
    """Of a change whose models came to this, space between them, and which changed this `field` beside them."""
    receipt = Receipt(id="r1", trigger="api", actor="test", asked_at=0.0)
    receipt.server_changes = () if field is None else ({"field": field, "old": 1, "new": 2, "class": "live"},)
    records = [ModelRecord(each, ModelAction.UPDATE, outcome=Outcome(each)) for each in models.split()]
    return outcome_of(receipt, records, has_server=has_server)


@pytest.mark.parametrize(
    ("models", "alone", "with_server"),
    [
        ("", "unchanged", "applied"),
        ("unchanged", "unchanged", "applied"),
        ("applied unchanged", "applied", "applied"),
        ("failed unchanged", "failed", "partially_applied"),
        ("failed applied", "partially_applied", "partially_applied"),
        ("rolled_back", "rolled_back", "partially_applied"),
        ("failed rolled_back", "failed", "partially_applied"),
        ("superseded", "superseded", "superseded"),
        ("superseded applied", "superseded", "superseded"),
    ],
)
def test_listeners_keys_and_certificates_count_as_a_model_does_where_they_are_in_force(models, alone, with_server):
    assert outcome(models) == alone
    assert {outcome(models, each) for each in OF_SERVER} == {with_server}


@pytest.mark.parametrize("field", ["reload.strategy", "devices[cpu:0].memory"])
def test_how_changes_are_made_and_what_devices_have_serve_nobody(field):
    assert outcome("failed", field) == "failed"


def test_what_an_atomic_change_did_not_open_is_not_in_force():
    assert outcome("failed", "server.port", has_server=False) == "failed"


@pytest.mark.parametrize("end", ["waits", "commit", "fail", "abandon"])
def test_the_server_section_of_an_atomic_change_is_in_force_once_all_have_switched(end):
    barrier = Barrier([], lambda _: None, lambda: None)
    {"waits": lambda: None, "commit": barrier.commit, "fail": lambda: barrier.fail("x"), "abandon": barrier.abandon}[
        end
    ]()
    opened = Opened(accepted=None, before=None, barrier=barrier)  # type: ignore[arg-type]  # is not looked at
    assert opened.has_server == (end == "commit")
