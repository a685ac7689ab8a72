"""A document's key and certificate files: what is found, where a fault stands, and what differs from before."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.config_documents import MODEL, read
from support.tls_files import Pair, make_pair

from halogend.config.facts import Facts
from halogend.config.rules import check
from halogend.config.schema import ServerConfig
from halogend.control.access import Access, changes, look

HEAD = "apiVersion: halogen.dev/v1alpha1\n"
Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    return written


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("tls"))


def server(**fields: Any) -> ServerConfig:
    return ServerConfig.model_validate(fields)


def with_keys(*keys: dict[str, Any], **fields: Any) -> ServerConfig:
    return server(auth={"keys": tuple(keys)}, **fields)


def lines(text: str) -> list[str]:
    """The problems of a document's files, as `halogend check` prints them."""
    parsed = read(HEAD + text + MODEL)
    assert parsed.partial is not None, parsed.problems
    return [str(problem) for problem in check(parsed, Facts(files=look(parsed.partial.server)[1]))]


# --- faults ---------------------------------------------------------------------------------------------


def test_r8_every_bad_file_is_a_problem_with_its_place(write: Write, pair: Pair) -> None:
    good, empty, blank = write("good", "a" * 32), write("empty", ""), write("blank", "\n \n")
    told = lines(
        "server:\n"
        f"  tls: {{cert: {pair.cert}, key: {empty}}}\n"
        "  auth:\n"
        "    keys:\n"
        f"      - {{name: a, file: {good}}}\n"
        f"      - {{name: b, file: {empty}}}\n"
        f"      - {{name: c, file: {blank}}}\n"
        "      - name: d\n"
        "        file: /no/such/file\n"
    )
    starts = ["3:", "7:25: HCF-1206", "8:25: HCF-1206", "10:15: HCF-1206"]
    assert [line[: len(start)] for line, start in zip(told, starts, strict=True)] == starts
    assert "HCF-1207" in told[0]
    assert ["is empty" in told[0], "is empty" in told[1], "white space" in told[2], "cannot be read" in told[3]] == [
        True
    ] * 4


def test_two_keys_of_one_value_are_refused(write: Write) -> None:
    one, two = write("one", "k" * 32), write("two", "k" * 32 + "\n")
    (told,) = lines(f"server: {{auth: {{keys: [{{name: a, file: {one}}}, {{name: b, file: {two}}}]}}}}\n")
    assert "HCF-1114" in told
    assert "also that of 'a'" in told


def test_with_a_fault_there_is_never_open_access(write: Write) -> None:
    access, facts = look(with_keys({"name": "a", "file": write("a", "")}))
    assert access.keys == ()
    assert [fact.warning for fact in facts] == [False]


# --- warnings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "told"), [(0o600, ""), (0o640, ""), (0o644, "may be read"), (0o602, "may be written")]
)
def test_a_secret_that_others_can_reach_is_a_warning(write: Write, tmp_path: Path, mode: int, told: str) -> None:
    path = write("a", "k" * 32)
    Path(path).chmod(mode)
    for folder, seen in ((0o755, told), (0o700, "")):
        tmp_path.chmod(folder)
        access, facts = look(with_keys({"name": "a", "file": path}))
        assert [fact.warning for fact in facts] == [True] * bool(seen)
        assert all(seen in fact.fault.message for fact in facts)
        assert access.keys


def test_a_key_that_could_be_guessed_is_a_warning(write: Write) -> None:
    _, facts = look(with_keys({"name": "a", "file": write("a", "k" * 15)}))
    assert ["could be guessed" in fact.fault.message for fact in facts] == [True]
    assert look(with_keys({"name": "a", "file": write("a", "k" * 16)}))[1] == ()


def test_a_certificate_may_be_read_by_all_and_its_key_may_not(pair: Pair, tmp_path: Path) -> None:
    both = make_pair(tmp_path, "open")
    tmp_path.chmod(0o755)
    for path in (both.cert, both.key):
        path.chmod(0o644)
    _, facts = look(server(tls=both.section))
    assert [(fact.path, fact.warning) for fact in facts] == [("server.tls.key", True)]


# --- what it comes to -------------------------------------------------------------------------------------


def test_open_and_not_said_are_no_keys() -> None:
    for fields in ({}, {"auth": "none"}):
        access, facts = look(server(**fields))
        assert (access.keys, facts, access.signatures) == (None, (), {})


def test_the_admin_listener_takes_its_own_certificate_else_the_common_one(pair: Pair, tmp_path: Path) -> None:
    own = make_pair(tmp_path, "own")
    tcp = "127.0.0.1:9443"
    assert look(server(tls=pair.section))[0].admin_tls is None
    assert look(server(tls=pair.section, admin="unix:/s"))[0].admin_tls is None
    common = look(server(tls=pair.section, admin=tcp))[0]
    assert common.admin_tls == common.tls
    both = look(server(tls=pair.section, admin=tcp, admin_tls=own.section))[0]
    assert [each and each.path for each in (both.tls, both.admin_tls)] == [str(pair.cert), str(own.cert)]
    assert look(server(admin=tcp, admin_tls=own.section))[0].tls is None


def test_an_expired_certificate_is_a_fault_of_it(pair: Pair) -> None:
    access, facts = look(server(tls=pair.section), now=time.time() + 31 * 86_400)
    assert access.tls is None
    assert [(fact.path, "expired" in fact.fault.message) for fact in facts] == [("server.tls.cert", True)]


def test_a_certificate_that_ended_in_force_is_told_and_keeps_nothing_out(pair: Pair, tmp_path: Path) -> None:
    """L13: and another one that is over is refused all the same."""
    config, later = server(tls=pair.section), time.time() + 31 * 86_400
    in_force = look(config)[0]
    access, facts = look(config, now=later, in_force=in_force)
    assert access.tls == in_force.tls
    assert [(fact.path, fact.warning, "still in force" in fact.fault.message) for fact in facts] == [
        ("server.tls.cert", True, True)
    ]
    other = make_pair(tmp_path, "other")
    _, facts = look(server(tls=other.section), now=later, in_force=in_force)
    assert [fact.warning for fact in facts] == [False]


# --- differences ------------------------------------------------------------------------------------------


def seen(config: ServerConfig) -> tuple[ServerConfig, Access]:
    return config, look(config)[0]


def test_a_file_that_holds_something_else_is_named_without_its_content(write: Write, pair: Pair) -> None:
    path = write("a", "first-value-of-the-key")
    config = with_keys({"name": "a", "file": path}, tls=pair.section)
    before = seen(config)
    assert changes(before, seen(config)) == ()
    write("a", "second-value-of-the-key\n")
    (change,) = changes(before, seen(config))
    assert (change["field"], change["class"]) == (f"input {path}", "live")
    assert change["old"] != change["new"]
    assert "value" not in f"{change['old']}{change['new']}"
    write("a", "  first-value-of-the-key\n")
    assert changes(before, seen(config)) == ()


def test_keys_that_come_go_and_change_are_named(write: Write) -> None:
    files = {name: write(name, name * 32) for name in "abcd"}
    old = with_keys(*({"name": name, "file": files[name]} for name in "abc"))
    new = with_keys(
        {"name": "c", "file": files["d"]},
        {"name": "b", "file": files["b"], "scopes": ("admin",), "classes": ("gold",), "weight": 2.0, "rpm": 60},
        {"name": "d", "file": files["a"]},
    )
    told = [(each["field"], each["old"], each["new"]) for each in changes(seen(old), seen(new))]
    assert told == [
        ("server.auth.keys.a", ["infer"], None),
        ("server.auth.keys.b.scopes", ["infer"], ["admin"]),
        ("server.auth.keys.b.classes", [], ["gold"]),
        ("server.auth.keys.b.weight", 1.0, 2.0),
        ("server.auth.keys.b.rpm", "off", 60),
        ("server.auth.keys.c.file", files["c"], files["d"]),
        ("server.auth.keys.d", None, ["infer"]),
    ]
    assert changes(seen(old), seen(with_keys(*reversed([{"name": n, "file": files[n]} for n in "abc"])))) == ()


def test_open_access_and_keys_are_told_apart(write: Write) -> None:
    keys, none = with_keys({"name": "a", "file": write("a", "k" * 32)}), server(auth="none")
    assert changes(seen(none), seen(keys))[0] == {"field": "server.auth", "old": "none", "new": "keys", "class": "live"}
    assert changes(seen(keys), seen(none))[0]["new"] == "none"
