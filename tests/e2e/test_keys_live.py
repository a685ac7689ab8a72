"""Keys and certificates on a real daemon: who comes in, and what happens when the files change under load."""

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import openai
import pytest
import yaml
from support.live import Live, document, live, until
from support.ports import free_port
from support.tiny_models import CHAT_TEMPLATE, tiny_llama
from support.tls_files import make_pair

ALICE, OPERATOR = "alice-0123456789abcdef", "operator-0123456789abcdef"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    tiny_llama(path, chat_template=CHAT_TEMPLATE)
    return {"name": "m", "model": str(path), "precision": "fp32"}


@pytest.fixture
def keys(tmp_path):
    """Writes the files of keys, and is the `auth` section that names them."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)

    def write(**values):
        for name, value in values.items():
            beside = folder / f".{name}"
            beside.write_text(value)
            beside.rename(folder / name)

    def section(**more):
        alice = {"name": "alice", "file": str(folder / "alice")}
        operator = {"name": "operator", "file": str(folder / "operator"), "scopes": ["admin"]}
        return {"keys": [alice, operator], **more}

    write(alice=ALICE + "\n", operator=OPERATOR)
    section.write, section.folder = write, folder
    return section


def client_of(daemon, key, **options):
    return openai.OpenAI(base_url=f"{daemon.url}/v1", api_key=key, max_retries=0, **options)


def ask(client, tokens=4):
    return client.completions.create(model="m", prompt="alpha", max_tokens=tokens, temperature=0).choices[0].text


def last_with(daemon, path):
    """The receipt of the newest change of an input at this path, when it has ended."""

    def found():
        told = [each for each in daemon.receipts() if each["actor"] == f"input {path}"]
        return told[0] if told and told[0]["outcome"] else None

    return until(found, f"{path} is noticed")


class Callers:
    """Threads that ask all the time; each takes its key from `key` anew."""

    def __init__(self, daemon, key, verify=True):
        self.key, self.count, self.failures = key, 0, []
        self._daemon, self._verify, self._stop = daemon, verify, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self):
        while not self._stop.is_set():
            # A client each time: a connection that is kept would not meet a new certificate.
            with (
                httpx.Client(verify=self._verify) as http,
                client_of(self._daemon, self.key, http_client=http) as client,
            ):
                for _ in range(3):
                    try:
                        ask(client)
                        self.count += 1
                    except openai.OpenAIError as error:
                        self.failures.append(repr(error))


def test_keys_open_what_their_scopes_say_and_nothing_shows_them(tmp_path, model, keys, monkeypatch):
    port = free_port()
    auth = keys()
    auth["keys"][0]["file"] = "${CREDENTIALS_DIRECTORY}/alice"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(keys.folder))
    with live(tmp_path, document(port, model, server={"auth": auth}), port) as daemon:
        daemon.until_serving()
        with (
            client_of(daemon, ALICE) as alice,
            client_of(daemon, "x") as nobody,
            client_of(daemon, OPERATOR) as operator,
        ):
            assert ask(alice)
            assert alice.models.list().data[0].id == "m"
            with pytest.raises(openai.AuthenticationError) as refused:
                ask(nobody)
            assert refused.value.code == "invalid_api_key"
            with pytest.raises(openai.PermissionDeniedError):
                ask(operator)
        for path in ("/livez", "/readyz", "/healthz", "/metrics"):
            assert httpx.get(daemon.url + path).status_code == 200
        status = daemon.status()
        assert status["auth"] == "keys"
        told = [(key["name"], key["scopes"]) for key in status["keys"]]
        assert told == [("alice", ["infer"]), ("operator", ["admin"])]
        transport = httpx.HTTPTransport(uds=daemon.admin.removeprefix("unix:"))
        with httpx.Client(transport=transport, base_url="http://x/admin/v1") as client:
            text = client.get("/document").text
        assert yaml.safe_load(text)["server"]["auth"]["keys"][0]["file"] == f"{keys.folder}/alice"
        shown = [json.dumps([status, daemon.receipts()]), daemon.log.read_text(), text]
        shown = "".join([*shown, httpx.get(f"{daemon.url}/metrics").text])
        assert ALICE not in shown
        assert OPERATOR not in shown


@pytest.mark.slow
def test_a_key_is_changed_under_load_without_a_failed_request(tmp_path, model, keys):
    port = free_port()
    with live(tmp_path, document(port, model, server={"auth": keys()}), port) as daemon:
        daemon.until_serving()
        with Callers(daemon, ALICE) as callers:
            keys.write(alice="alice-the-second-0123456789")
            receipt = last_with(daemon, keys.folder / "alice")
            assert receipt["outcome"] == "applied"
            assert [change["class"] for change in receipt["server_changes"]] == ["live"]
            old_still_in_use = callers.count
            until(lambda: callers.count > old_still_in_use + 20, "the old value serves on")
            callers.key = "alice-the-second-0123456789"
            switched = callers.count
            until(lambda: callers.count > switched + 20, "the new value serves")
        assert callers.failures == []
        assert daemon.status()["keys"][0]["previous_valid_s"] > 200
        daemon.write(document(port, model, server={"auth": keys(overlap_s=0)}))
        assert daemon.reload()[1]["outcome"] == "applied"
        with client_of(daemon, ALICE) as old, pytest.raises(openai.AuthenticationError):
            ask(old)


@pytest.mark.slow
def test_r8_a_bad_key_file_is_rejected_and_a_bad_document_holds_no_key_up(tmp_path, model, keys):
    port = free_port()
    good = document(port, model, server={"auth": keys()})
    with live(tmp_path, good, port) as daemon:
        daemon.until_serving()
        keys.write(alice=" \n")
        receipt = last_with(daemon, keys.folder / "alice")
        assert receipt["outcome"] == "rejected"
        (problem,) = receipt["problems"]
        assert (problem["code"], problem["path"]) == ("HCF-1206", "server.auth.keys[0].file")
        assert good.splitlines()[problem["line"] - 1].strip().startswith("file:")
        assert daemon.check()[0] == 1
        assert daemon.reload()[0] == 1
        with client_of(daemon, ALICE) as alice:
            assert ask(alice)
        assert httpx.get(f"{daemon.url}/v1/models").status_code == 401
        daemon.write("models: [")
        until(lambda: daemon.receipts()[0]["problems"][0]["code"] == "HCF-1005", "the bad document is seen")
        keys.write(alice="alice-the-third-0123456789")
        until(lambda: last_with(daemon, keys.folder / "alice")["outcome"] == "applied", "the key is taken all the same")
        with client_of(daemon, "alice-the-third-0123456789") as alice:
            assert ask(alice)


@pytest.mark.parametrize("content", [None, ""], ids=["missing", "empty"])
def test_r8_a_start_with_a_named_key_that_is_not_there_is_refused(tmp_path, model, keys, content):
    port = free_port()
    if content is None:
        (keys.folder / "alice").unlink()
    else:
        keys.write(alice=content)
    daemon = Live(tmp_path, document(port, model, server={"auth": keys()}), port)
    assert daemon.process.wait(timeout=60) == 78
    assert "HCF-1206" in daemon.log.read_text()
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0


# --- TLS --------------------------------------------------------------------------------------------------


def serves(url, context):
    try:
        return httpx.get(f"{url}/readyz", verify=context).status_code == 200
    except httpx.TransportError:
        return False


def shown_by(port, context):
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        return sock.getpeercert(binary_form=True)


def der(pair):
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


@contextlib.contextmanager
def secure(folder, text, port, context):
    with live(folder, text, port) as daemon:
        daemon.url = f"https://127.0.0.1:{port}"
        until(lambda: serves(daemon.url, context) or daemon.process.poll() is not None, "serving")
        yield daemon


@pytest.mark.slow
def test_tls_and_a_renewed_certificate_under_load(tmp_path, model, keys):
    port = free_port()
    pair, renewed, stranger = (make_pair(tmp_path, name) for name in ("server", "renewed", "stranger"))
    trust = pair.client()
    trust.load_verify_locations(renewed.cert)
    server = {"auth": keys(), "tls": pair.section}
    with secure(tmp_path, document(port, model, server=server), port, trust) as daemon:
        first = der(pair)
        assert shown_by(port, trust) == first
        tls = daemon.status()["listeners"]["inference"]["tls"]
        assert 29 * 86_400 < tls["expires_in_s"] <= 30 * 86_400
        metrics = httpx.get(f"{daemon.url}/metrics", verify=trust).text
        assert 'halogen_tls_certificate_expiry_timestamp_seconds{listener="inference"}' in metrics
        with Callers(daemon, ALICE, verify=trust) as callers:
            pair.replace_with(renewed)
            until(lambda: shown_by(port, trust) != first, "the new certificate is shown")
            seen = callers.count
            until(lambda: callers.count > seen + 10, "requests go on")
        assert callers.failures == []
        assert callers.count > 10
        assert shown_by(port, trust) == der(renewed)
        pair.key.write_bytes(stranger.key.read_bytes())
        receipt = last_with(daemon, pair.key)
        assert (receipt["outcome"], receipt["problems"][0]["code"]) == ("rejected", "HCF-1207")
        assert shown_by(port, trust) == der(renewed)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/livez")


@pytest.mark.slow
def test_tls_comes_and_goes_on_one_port(tmp_path, model):
    port = free_port()
    pair = make_pair(tmp_path)
    plain, with_tls = (document(port, model, server=server) for server in ({}, {"tls": pair.section}))
    with live(tmp_path, plain, port) as daemon:
        daemon.until_serving()
        with httpx.Client() as kept:
            assert kept.get(f"{daemon.url}/livez").status_code == 200
            daemon.write(with_tls)
            assert daemon.reload()[1]["outcome"] == "applied"
            assert serves(f"https://127.0.0.1:{port}", pair.client())
            with pytest.raises(httpx.TransportError):
                kept.get(f"{daemon.url}/livez")
        daemon.write(plain)
        assert daemon.reload()[1]["outcome"] == "applied"
        assert httpx.get(f"{daemon.url}/livez").status_code == 200


# --- the admin listener on TCP ----------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_reach_an_admin_listener_on_tcp(tmp_path, model, keys, monkeypatch):
    port, admin_port = free_port(), free_port()
    pair = make_pair(tmp_path, "admin")
    server = {"auth": keys(), "admin": f"127.0.0.1:{admin_port}", "admin_tls": pair.section}
    text = document(port, model, server=server)
    with live(tmp_path, text, port) as daemon:
        daemon.until_serving()
        assert not Path(daemon.admin.removeprefix("unix:")).exists()
        daemon.admin = f"127.0.0.1:{admin_port}"
        url = f"https://{daemon.admin}/admin/v1/status"
        with httpx.Client(verify=pair.client()) as client:
            answers = [client.get(url, headers={"authorization": f"Bearer {key}"}) for key in ("x", ALICE, OPERATOR)]
            assert [client.get(url).status_code, *(each.status_code for each in answers)] == [401, 401, 403, 200]
        for name, value, said in (
            ("HALOGEN_ADMIN_CA", "", "wants a key"),
            ("HALOGEN_ADMIN_KEY_FILE", str(keys.folder / "alice"), "not trusted"),
            ("HALOGEN_ADMIN_CA", str(pair.cert), "lacks the scope `admin`"),
        ):
            monkeypatch.setenv(name, value)
            with pytest.raises(AssertionError, match=said):
                daemon.status()
        monkeypatch.setenv("HALOGEN_ADMIN_KEY_FILE", str(keys.folder / "operator"))
        status = daemon.status()
        assert status["listeners"]["admin"]["address"] == daemon.admin
        assert status["listeners"]["inference"]["tls"] is None
        code, receipt = daemon.reload()
        assert (code, receipt["outcome"], receipt["actor"]) == (0, "unchanged", "key:operator")
        daemon.write(document(port, model, server={"auth": keys(), "admin": f"unix:{tmp_path}/a.sock"}))
        daemon.admin = f"unix:{tmp_path}/a.sock"
        until(lambda: is_open(f"{tmp_path}/a.sock"), "the admin listener is a socket again")
        assert daemon.reload()[1]["actor"].startswith("uid:")
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, verify=pair.client())


def is_open(path):
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(path) == 0


def test_an_admin_address_on_tcp_belongs_into_the_document():
    """The flag opens no port that has neither certificate nor keys."""
    command = [sys.executable, "-m", "halogend", "run", "--config", "x", "--admin", "127.0.0.1:9443"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "stands in the document" in done.stderr
