"""Keys: what a file may hold, what is compared, and what a change of a file means for those who use it."""

import hashlib
import hmac
from pathlib import Path

import pytest

from halogend.control.keys import MAX_KEY_BYTES, Key, KeyFileError, Keyring, read_key


def key(name: str, value: str, *scopes: str) -> Key:
    return Key(name, frozenset(scopes or ("infer",)), hashlib.sha256(value.encode()).digest())


def ring(*keys: Key, overlap_s: float = 300.0, now: float = 0.0) -> Keyring:
    return Keyring().followed_by(keys, overlap_s, now)


def name_of(ring: Keyring, value: str, now: float = 0.0) -> str | None:
    found = ring.find(value.encode(), now)
    return found.name if found else None


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["secret-1", "secret-1\n", "  secret-1 \r\n\t"])
def test_white_space_around_a_key_does_not_count(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    assert read_key(str(tmp_path / "k"))[0] == b"secret-1"


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "white space only"),
        (b"two words", "one line"),
        (b"one\ntwo", "one line"),
        ("schlüssel".encode(), "visible ASCII"),
        (b"a\0b", "visible ASCII"),
        (b"k" * (MAX_KEY_BYTES + 1), "larger than 4096 bytes"),
    ],
)
def test_r8_a_file_that_holds_no_key_says_so(tmp_path: Path, data: bytes, part: str) -> None:
    (tmp_path / "k").write_bytes(data)
    with pytest.raises(KeyFileError, match=part):
        read_key(str(tmp_path / "k"))


def test_the_longest_key(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"k" * MAX_KEY_BYTES)
    assert len(read_key(str(tmp_path / "k"))[0]) == MAX_KEY_BYTES


@pytest.mark.parametrize("path", ["no-such-file", "."])
def test_what_cannot_be_read(tmp_path: Path, path: str) -> None:
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_key(str(tmp_path / path))


def test_a_pipe_does_not_hold_the_reader(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "k")
    with pytest.raises(KeyFileError, match="not a regular file"):
        read_key(str(tmp_path / "k"))


# --- finding ----------------------------------------------------------------------------------------------


def test_a_key_is_found_by_its_value_alone() -> None:
    held = ring(key("a", "one"), key("b", "two"))
    assert [name_of(held, value) for value in ("one", "two", "a", "", "onetwo", "on")] == ["a", "b", *[None] * 4]


@pytest.mark.parametrize("value", ["one", "three", "none of them", "older"])
def test_every_value_is_compared_in_constant_time_whichever_it_is(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    held = ring(key("a", "older"), key("b", "two"), key("c", "three"))
    held = held.followed_by((key("a", "one"), key("b", "two"), key("c", "three")), 300, 1.0)
    compared: list[tuple[bytes, bytes]] = []

    def counted(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", counted)
    held.find(value.encode(), 2.0)
    digest = hashlib.sha256(value.encode()).digest()
    assert [right for _, right in compared] == [digest] * 4
    assert {len(left) for left, _ in compared} == {32}
    assert len({left for left, _ in compared}) == 4


def test_what_is_held_and_shown_is_no_key() -> None:
    held = ring(key("a", "a-very-secret-value"))
    assert "a-very-secret-value" not in repr(held)
    (shown,) = held.view(0.0)
    assert shown["name"] == "a"
    assert not hashlib.sha256(b"a-very-secret-value").hexdigest().startswith(shown["fingerprint"])


# --- changes ----------------------------------------------------------------------------------------------


def test_a_changed_key_and_its_old_value_both_open_until_the_overlap_ends() -> None:
    held = ring(key("a", "old"), now=0).followed_by((key("a", "new"),), 60, 100.0)
    assert [name_of(held, value, 159.9) for value in ("old", "new")] == ["a", "a"]
    assert [name_of(held, value, 160.0) for value in ("old", "new")] == [None, "a"]
    assert held.view(130.0)[0]["previous_valid_s"] == 30.0
    assert held.view(160.0)[0]["previous_valid_s"] == 0.0


def test_an_old_value_has_the_scopes_its_name_has_now() -> None:
    held = ring(key("a", "old", "infer", "admin")).followed_by((key("a", "new", "infer"),), 60, 0.0)
    found = held.find(b"old", 1.0)
    assert found is not None
    assert found.scopes == {"infer"}


def test_a_removed_name_ends_at_once_with_all_its_values() -> None:
    held = ring(key("a", "old"), key("b", "two")).followed_by((key("a", "new"), key("b", "two")), 60, 0.0)
    held = held.followed_by((key("b", "two"),), 60, 1.0)
    assert [name_of(held, value, 1.0) for value in ("old", "new", "two")] == [None, None, "b"]


def test_an_overlap_of_nothing_ends_the_old_value_at_once() -> None:
    held = ring(key("a", "old")).followed_by((key("a", "new"),), 0, 5.0)
    assert name_of(held, "old", 5.0) is None


def test_a_shorter_overlap_shortens_one_that_runs_and_a_longer_one_revives_nothing() -> None:
    held = ring(key("a", "old")).followed_by((key("a", "new"),), 300, 0.0)
    shorter = held.followed_by((key("a", "new"),), 10, 20.0)
    assert name_of(shorter, "old", 20.0) is None
    longer = shorter.followed_by((key("a", "new"),), 300, 21.0)
    assert name_of(longer, "old", 21.0) is None


def test_several_changes_in_a_row_and_the_way_back() -> None:
    held = ring(key("a", "v1"))
    for at, value in enumerate(["v2", "v3", "v1"], 1):
        held = held.followed_by((key("a", value),), 60, float(at))
    assert [name_of(held, value, 4.0) for value in ("v1", "v2", "v3")] == ["a", "a", "a"]
    assert [old.at for old in held.retired] == [2.0, 3.0]
    assert name_of(held, "v1", 1000.0) == "a"


def test_a_value_that_changed_hands_is_the_new_ones() -> None:
    held = ring(key("a", "x"), key("b", "y")).followed_by((key("a", "y"), key("b", "x")), 60, 0.0)
    assert (name_of(held, "x", 1.0), name_of(held, "y", 1.0)) == ("b", "a")


def test_open_is_open_and_keeps_nothing() -> None:
    held = ring(key("a", "old")).followed_by(None, 60, 0.0)
    assert held.is_open
    again = held.followed_by((key("a", "new"),), 60, 1.0)
    assert not again.is_open
    assert name_of(again, "old", 1.0) is None


def test_open_inference_goes_with_the_document_that_says_so() -> None:
    held = Keyring().followed_by((key("a", "x", "admin"),), 60, 0.0, lets_all_infer=True)
    assert held.is_open
    assert name_of(held, "x") == "a"
    assert not held.followed_by((key("a", "x", "admin"),), 60, 1.0).is_open
