"""How acts are dealt out, whose windows switches open, and what a mount looks like."""

import pytest
from torture.document import Checkpoint, Wish
from torture.evidence import Evidence, Serving
from torture.messages import Asked, End
from torture.mount import Mount
from torture.schedule import capacity_of, dealt
from torture.watch import servings_of

from halogend.config.parse import parse


@pytest.mark.parametrize(("acts", "slots"), [(11, 3), (11, 50), (3, 6), (3, 3), (5, 1)])
def test_every_act_is_done_and_no_slot_is_idle(acts, slots):
    deck = [(str(number), None) for number in range(acts)]
    found = dealt(deck, slots)
    assert len(found) == slots
    assert all(found)
    names = [name for slot in found for name, _ in slot]
    assert set(names) == {str(number) for number in range(acts)}
    counts = [names.count(name) for name, _ in deck]
    assert max(counts) - min(counts) <= 1


def test_capacity_counts_answers_under_way_in_part():
    def asked(*tokens_at, end=End.ANSWERED):
        times = {"sent_at": 0, "tokens_at": tokens_at, "ended_at": 9}
        return Asked(prompt=0, end=end, code="", moved=0, text="", **times)

    assert capacity_of([asked(1, 2, 3, 4), asked(3, 4, 5, 6)], 0, 4) == pytest.approx(1.5 / 4)
    assert capacity_of([asked(end=End.FAILED)], 0, 4) == 0
    assert capacity_of([], 0, 4) == 0


def test_a_mount_is_swapped_as_kubelet_does(tmp_path):
    """R1: three levels, the old folder gone, dot names only."""
    mount = Mount(tmp_path / "mount", "one")
    seen = [mount.path.read_text()]
    for text in ("two", "three"):
        mount.write(text)
        seen.append(mount.path.read_text())
    assert seen == ["one", "two", "three"]
    names = sorted(each.name for each in (tmp_path / "mount").iterdir())
    assert names[0].startswith("..2")
    assert names[1:] == ["..data", "config.yaml"]
    assert str(mount.path.readlink()) == "..data/config.yaml"


def test_a_turn_of_policy_changes_the_document_and_no_generation(tmp_path):
    wish = Wish(Checkpoint(tmp_path / "a.gguf", "tiny", "fp32", "2MiB"), 20_000)
    documents = [
        parse(Wish(wish.checkpoint, wish.port, policy).text().encode(), "x", {}).document for policy in range(12)
    ]
    assert None not in documents
    models = [document.models[0] for document in documents]
    assert len(set(models)) == len(models)
    assert len({(model.model, model.precision, model.device, model.kernels) for model in models}) == 1


def test_servings_follow_the_switches_of_known_generations(tmp_path):
    tiny, real = Checkpoint(tmp_path / "a", "tiny", "fp32", "2MiB"), Checkpoint(tmp_path / "b", "real", "auto", "24MiB")

    def switch(at, generation):
        steps = [{"name": "load", "began_at": at - 1}, {"name": "switch", "began_at": at, "generation": generation}]
        return {"models": [{"steps": steps}]}

    receipts = {"r3": switch(30.0, 3), "r2": switch(20.0, 2), "r4": switch(40.0, 9)}
    evidence = Evidence(receipts=receipts, paths={1: str(tiny.path), 2: str(real.path), 3: str(tiny.path)})
    assert servings_of(evidence, [tiny, real], tiny) == [
        Serving(0.0, "tiny"),
        Serving(20.0, "real"),
        Serving(30.0, "tiny"),
    ]
