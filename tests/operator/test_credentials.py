"""The Secret of a HalogenModel: made once, renewed in time, mended where it is broken. TLS is spoken for real."""

import datetime as dt
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from halogen_operator.credentials import AUTHORITY_LIFE, LEAF_LIFE, fault, issue, renewed
from halogen_operator.names import server_name
from halogen_operator.wanted import Ref

REF = Ref("default", "chat", "1b4e28ba-2fa1-11d2-883f-0016d3cca427")
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def ends(secret: Mapping[str, bytes], name: str) -> dt.datetime:
    return x509.load_pem_x509_certificate(secret[name]).not_valid_after_utc


@pytest.fixture
def speaks(tmp_path: Path) -> Callable[..., str]:
    """A TLS handshake over memory: who serves has one Secret, who asks another. The reason of a refusal, else ''."""

    def speak(served: Mapping[str, bytes], asking: Mapping[str, bytes], name: str) -> str:
        for each in ("tls.crt", "tls.key"):
            (tmp_path / each).write_bytes(served[each])
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        client = ssl.create_default_context(cadata=asking["ca.crt"].decode())
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        return _handshake(server, client, name)

    return speak


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return "" if all(side.cipher() for side in sides) else "no handshake"


def test_the_operator_knows_the_pods_and_only_them(speaks: Callable[..., str]) -> None:
    secret, other = issue(REF, NOW), issue(REF, NOW)
    name = server_name("chat", "default")
    assert speaks(secret, secret, name) == ""
    assert speaks(secret, secret, "localhost") == speaks(secret, secret, "127.0.0.1") == ""
    assert "Hostname mismatch" in speaks(secret, secret, server_name("chat", "other"))
    assert speaks(other, secret, name) != ""


def test_every_issue_is_another_and_its_key_is_long() -> None:
    one, two = issue(REF, NOW), issue(REF, NOW)
    assert set(one) == {"admin.key", "ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert not set(one.values()) & set(two.values())
    assert len(one["admin.key"]) == 64


def test_longest_names_fit(speaks: Callable[..., str]) -> None:
    ref = Ref("n" * 63, "m" * 63, "u" * 128)
    secret = issue(ref, NOW)
    assert speaks(secret, secret, server_name(ref.name, ref.namespace)) == ""


def test_nothing_is_renewed_before_its_time() -> None:
    secret = issue(REF, NOW)
    assert renewed(secret, REF, NOW) is None
    assert renewed(secret, REF, NOW + LEAF_LIFE * 2 / 3 - DAY) is None


@pytest.mark.parametrize("later", [LEAF_LIFE * 2 / 3, LEAF_LIFE - DAY, LEAF_LIFE + 9 * DAY], ids=str)
def test_the_certificate_is_renewed_when_a_third_of_its_life_is_left(
    later: dt.timedelta,
) -> None:
    secret = issue(REF, NOW)
    new = renewed(secret, REF, NOW + later)
    assert new is not None
    kept = ("admin.key", "ca.crt", "ca.key")
    assert {name: new[name] for name in kept} == {name: secret[name] for name in kept}
    assert ends(new, "tls.crt") > NOW + later + LEAF_LIFE - DAY
    assert renewed(new, REF, NOW + later) is None


def test_after_a_new_authority_pods_with_the_old_certificate_are_still_known(speaks: Callable[..., str]) -> None:
    secret = renewed(issue(REF, NOW - AUTHORITY_LIFE * 2 / 3), REF, NOW - 2 * DAY)
    assert secret is not None
    new = renewed(secret, REF, NOW)
    assert new is not None
    assert new["ca.key"] != secret["ca.key"]
    assert new["admin.key"] == secret["admin.key"]
    name = server_name("chat", "default")
    assert speaks(secret, new, name) == ""
    assert speaks(new, new, name) == ""
    assert renewed(new, REF, NOW) is None
    again = renewed(new, REF, NOW + LEAF_LIFE)
    assert again is not None
    assert again["ca.crt"] == new["ca.crt"]


def _without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda secret: {key: value for key, value in secret.items() if key != name}


def _with(name: str, value: bytes) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda secret: {**secret, name: value}


def _swapped(*names: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    other = issue(REF, NOW)
    return lambda secret: {**secret, **{name: other[name] for name in names}}


BROKEN: list[tuple[Any, str]] = [
    (_without("admin.key"), "has no usable admin.key"),
    (_with("admin.key", b" \n"), "has no usable admin.key"),
    (_with("admin.key", b"short"), "has no usable admin.key"),
    (_with("admin.key", b"two words, and so no key"), "has no usable admin.key"),
    (_without("ca.crt"), "has no usable ca.crt"),
    (_with("ca.crt", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "has no usable ca.crt"),
    (_without("ca.key"), "has no usable ca.key"),
    (_with("tls.key", b"\xff\x00"), "has no usable tls.key"),
    (_without("tls.crt"), "has no usable tls.crt"),
    (_swapped("tls.key"), "not that of its tls.crt"),
    (_swapped("tls.crt", "tls.key"), "a tls.crt that is not signed by its ca.crt"),
    (_swapped("ca.crt", "ca.key"), "a tls.crt that is not signed by its ca.crt"),
    (lambda _: issue(Ref("default", "other", "u"), NOW), "for another server name"),
    (lambda _: {}, "has no usable admin.key"),
]


@pytest.mark.parametrize(("spoil", "part"), BROKEN, ids=[part for _, part in BROKEN])
def test_what_is_broken_is_told_and_made_anew(spoil: Any, part: str, speaks: Callable[..., str]) -> None:
    secret = issue(REF, NOW)
    broken = spoil(dict(secret))
    assert part in (fault(broken, REF) or "")
    new = renewed(broken, REF, NOW)
    assert new is not None
    assert fault(new, REF) is None
    assert renewed(new, REF, NOW) is None
    assert speaks(new, new, server_name("chat", "default")) == ""
    if "admin.key" not in part:
        assert new["admin.key"] == broken["admin.key"]


def test_age_is_no_fault() -> None:
    assert fault(issue(REF, NOW - 2 * LEAF_LIFE), REF) is None
