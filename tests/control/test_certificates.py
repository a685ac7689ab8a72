"""Certificates: every way in which a file can be wrong, and how long a right one is valid."""

import ssl
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tls_files import Pair, make_pair

from halogend.config.access import TlsConfig
from halogend.control.certificates import TlsFileError, read_certificate
from halogend.control.x509 import CertificateError, validity

DAY_S = 86_400


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("tls"))


def refusal(config: TlsConfig, now: float | None = None) -> tuple[str, str]:
    with pytest.raises(TlsFileError) as caught:
        read_certificate(config, time.time() if now is None else now)
    return caught.value.field, str(caught.value)


def openssl_dates(cert: Path) -> list[float]:
    command = ["openssl", "x509", "-in", str(cert), "-noout", "-dates"]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return [ssl.cert_time_to_seconds(line.partition("=")[2]) for line in told.stdout.splitlines()]


def test_a_good_pair(pair: Pair) -> None:
    found, _, _ = read_certificate(pair.config, time.time())
    assert found.not_after == openssl_dates(pair.cert)[1]
    assert found.context.minimum_version is ssl.TLSVersion.TLSv1_2
    view = found.view(found.not_after - 90)
    assert view["expires_in_s"] == 90
    assert datetime.fromisoformat(view["not_after"]).timestamp() == found.not_after
    assert "PRIVATE" not in repr(found)


def test_the_key_may_stand_behind_the_certificate_in_one_file(pair: Pair, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(pair.key.read_bytes() + b"\n" + pair.cert.read_bytes())
    assert read_certificate(TlsConfig(cert=str(both), key=str(both)), time.time())[0].not_after


def test_it_is_refused_outside_its_time(pair: Pair) -> None:
    begins, ends = openssl_dates(pair.cert)
    read_certificate(pair.config, begins)
    read_certificate(pair.config, ends - 1)
    assert refusal(pair.config, ends)[1].startswith("expired on 2")
    field, text = refusal(pair.config, begins - 1)
    assert (field, text.startswith("is not valid before 2")) == ("cert", True)


@pytest.mark.parametrize("field", ["cert", "key"])
@pytest.mark.parametrize(
    ("data", "part"),
    [(b"", "is empty"), (b" \n", "white space only"), (b"x" * ((1 << 20) + 1), "larger"), (None, "cannot be read")],
)
def test_r8_files_that_hold_nothing(pair: Pair, tmp_path: Path, field: str, data: bytes | None, part: str) -> None:
    path = tmp_path / "file"
    if data is not None:
        path.write_bytes(data)
    told, text = refusal(TlsConfig(**{**pair.section, field: str(path)}))
    assert told == field
    assert part in text


def test_a_key_of_another_certificate(pair: Pair, tmp_path: Path) -> None:
    other = make_pair(tmp_path, "other")
    assert refusal(TlsConfig(cert=str(pair.cert), key=str(other.key))) == ("key", "is not the key of the certificate")


def test_a_key_with_a_pass_phrase_asks_nobody(tmp_path: Path) -> None:
    locked = make_pair(tmp_path, "locked", "-passout", "pass:abcd")
    field, text = refusal(locked.config)
    assert (field, "pass phrase" in text) == ("key", True)


def test_files_the_wrong_way_round(pair: Pair) -> None:
    field, text = refusal(TlsConfig(cert=str(pair.key), key=str(pair.cert)))
    assert (field, "no private key" in text) == ("key", True)


@pytest.mark.parametrize("cut", [10, 100, 300])
def test_a_certificate_that_ends_early(pair: Pair, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.pem"
    path.write_bytes(pair.cert.read_bytes()[:-cut])
    assert refusal(TlsConfig(cert=str(path), key=str(pair.key)))[0] == "cert"


def test_the_bytes_that_were_checked_are_used(pair: Pair, tmp_path: Path) -> None:
    one, other = make_pair(tmp_path, "one"), make_pair(tmp_path, "two")
    before = read_certificate(one.config, time.time())[0]
    one.replace_with(other)
    after = read_certificate(one.config, time.time())[0]
    assert before.fingerprint != after.fingerprint
    assert before != after


# --- dates ------------------------------------------------------------------------------------------------


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 128:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def certificate(first: bytes, second: bytes, *, version: bool = True) -> bytes:
    before = (element(0xA0, b"\x02\x01\x02") if version else b"") + element(2, b"\x01") + element(0x30, b"") * 2
    return element(0x30, element(0x30, before + element(0x30, first + second) + element(0x30, b"x" * 300)))


@pytest.mark.parametrize("version", [True, False])
def test_both_kinds_of_dates_and_both_centuries(version: bool) -> None:
    dates = [element(0x17, b"500101000000Z"), element(0x18, b"20500101000000Z")]
    expected = [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1950, 2050)]
    assert list(validity(certificate(*dates, version=version))) == expected
    assert validity(certificate(element(0x17, b"491231235959Z"), dates[1]))[0] == expected[1] - 1


@pytest.mark.parametrize("date", [element(0x17, b"991301000000Z"), element(0x17, b"x"), element(4, b"1"), b""])
def test_dates_that_are_none(date: bytes) -> None:
    with pytest.raises(CertificateError):
        validity(certificate(date, date))


@given(st.binary(max_size=80))
def test_bytes_are_dates_or_refused(data: bytes) -> None:
    for der in (data, certificate(data, b""), element(0x30, data), element(0x30, element(0x30, data))):
        try:
            validity(der)
        except CertificateError:
            continue


def test_every_cut_of_a_real_one_is_refused(pair: Pair) -> None:
    der = ssl.PEM_cert_to_DER_cert(pair.cert.read_text())
    for length in range(0, len(der), 7):
        with pytest.raises(CertificateError):
            validity(der[:length])
