"""Sources, as a user starts the daemon with them: a directory that is edited, and documents that are pushed."""

import socket

import httpx
import pytest
import yaml
from support.live import document, live, until
from support.ports import free_port
from support.tiny_models import tiny_llama


def run(config, *more):
    return ("-m", "halogend", "run", "--config", str(config), *more)


@pytest.fixture
def client(tmp_path):
    transport = httpx.HTTPTransport(uds=str(tmp_path / "halogend/admin.sock"))
    with httpx.Client(transport=transport, base_url="http://x/admin/v1", timeout=60) as made:
        yield made


def answers(running):
    """Does somebody listen on the admin socket?"""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(running.admin.removeprefix("unix:")) == 0


def test_r3_a_directory_is_one_document_and_each_edit_of_it_is_applied(tmp_path):
    """Without models, so that nothing loads: the listener's port is what the edit moves."""
    folder, ports = tmp_path / "conf.d", (free_port(), free_port())
    folder.mkdir()
    (folder / "10-base.yaml").write_text("apiVersion: halogen.dev/v1alpha1\nallow_empty: true\nmodels: []\n")
    (folder / "20-server.yaml").write_text(f"server: {{port: {ports[0]}}}\n")
    with live(tmp_path, "", ports[0], run(folder)) as running:
        until(lambda: answers(running), "up")
        (folder / "20-server.yaml").write_text(f"server:\n  port: {ports[1]}\n  ready: all\n")
        until(lambda: running.status()["listeners"]["inference"]["address"].endswith(str(ports[1])), "moved")
        newest = running.receipts()[0]
        assert (newest["outcome"], newest["trigger"], newest["source"]) == ("applied", "file", str(folder))
        (folder / "30-bad.yaml").write_text("server: {port: 1}\n")
        rejected = until(lambda: [r for r in running.receipts() if r["outcome"] == "rejected"], "rejected")[0]
        (problem,) = rejected["problems"]
        assert (problem["file"], problem["line"], problem["code"]) == (f"{folder}/30-bad.yaml", 1, "HCF-1006")
        status, plan = running.command("plan", str(folder))
        assert (status, plan["problems"][0]["file"]) == (1, f"{folder}/30-bad.yaml")


def test_push_a_bad_document_at_the_start_is_reported_and_the_daemon_stays(tmp_path, client):
    port = free_port()
    bad = document(port, {"name": "a", "model": "/no/such.gguf"})
    (tmp_path / "pushed.yaml").write_text(bad)
    with live(tmp_path, "", port, run(tmp_path / "pushed.yaml", "--source", "push")) as running:
        until(lambda: answers(running), "the admin socket")
        problems = client.get("/status").json()["last_receipt"]["problems"]
        assert [(p["file"], p["code"]) for p in problems] == [(f"{tmp_path}/pushed.yaml", "HCK-1010")]
        assert httpx.get(f"{running.url}/livez").status_code == 200
        assert httpx.get(f"{running.url}/readyz").status_code == 503
        (tmp_path / "pushed.yaml").write_text("models: [")  # nobody watches it
        fixed = yaml.safe_load(bad)
        fixed |= {"models": [], "allow_empty": True}
        answer = client.put("/document?wait=closed", content=yaml.safe_dump(fixed))
        assert (answer.status_code, answer.json()["problems"]) == (200, [])
        assert client.get("/status").json()["settled"]
        assert running.stop() == 0


@pytest.mark.slow
def test_push_a_start_at_which_no_model_loads_does_not_end(tmp_path, client):
    tiny_llama(tmp_path / "a.gguf")
    (tmp_path / "bad.jinja").write_text("{% for %}")
    port = free_port()
    model = {"name": "x", "model": f"{tmp_path}/a.gguf", "chat_template": f"{tmp_path}/bad.jinja"}
    (tmp_path / "pushed.yaml").write_text(document(port, model))
    with live(tmp_path, "", port, run(tmp_path / "pushed.yaml", "--source", "push")) as running:
        until(lambda: "nothing_serves" in running.log.read_text(), "it is told")
        assert running.process.poll() is None
        assert client.get("/status").json()["last_receipt"]["outcome"] == "failed"
        del model["chat_template"]
        text, origin = document(port, model), "uid=u, generation={}".format
        answer = client.put("/document?wait=serving", content=text, headers={"halogen-origin": origin(3)})
        assert (answer.status_code, answer.json()["outcome"]) == (200, "applied")
        assert httpx.get(f"{running.url}/readyz").status_code == 200
        assert client.put("/document", content=text, headers={"halogen-origin": origin(2)}).status_code == 409
        tag = {"if-match": client.get("/document").headers["etag"]}
        changed = text.replace("port:", "ready: all\n  port:")
        assert client.put("/document?wait=serving", content=changed, headers=tag).status_code == 200
        assert client.put("/document?wait=serving", content=text, headers=tag).status_code == 409
        assert running.stop() == 0
