"""Plan, rollback, hold, and what outlives a restart, from the command line of a real daemon."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from support.live import document, live, until
from support.ports import free_port
from support.tiny_models import tiny_gemma3, tiny_llama

from halogend.obs.exits import Exit


@pytest.fixture
def pair(tmp_path):
    tiny_llama(tmp_path / "a.gguf", layers=2)
    tiny_gemma3(tmp_path / "b.gguf", layers=2)
    return tmp_path


def text_of(folder, port, name, **more):
    return document(port, {"name": "chat", "model": f"{folder}/{name}.gguf", "precision": "fp32", **more})


def halogend(daemon, *words, data=None):
    """(exit status, standard output, standard error), as a person gets them."""
    command = [sys.executable, "-m", "halogend", *words, "--admin", daemon.admin]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=data, timeout=60)
    return done.returncode, done.stdout, done.stderr


def restarted(folder, port, text, *more):
    words = ("-m", "halogend", "run", "--config", str(folder / "config.yaml"), *more)
    return live(folder, text, port, words)


def standing(status):
    """What runs, without what is measured each second."""
    lasting = ("generation", "device", "path", "pids", "kernels")
    return {
        name: {**model, "serving": {key: model["serving"][key] for key in lasting}}
        for name, model in status["models"].items()
    }


def test_a_plan_holds_what_the_receipt_then_says_was_held_and_changes_nothing(pair):
    port = free_port()
    with live(pair, text_of(pair, port, "a"), port) as daemon:
        daemon.until_serving()
        before = daemon.status()
        wanted = pair / "wanted.yaml"
        wanted.write_text(text_of(pair, port, "b", max_batch=7))
        status, plan = daemon.command("plan", str(wanted))
        assert (status, plan["outcome"], plan["source"]) == (2, "changes", str(wanted))
        (model,) = plan["models"]
        assert (model["action"], model["strategy"]) == ("replace", "overlap")
        assert {(c["field"], c["class"]) for c in model["changes"]} >= {("model", "generation"), ("max_batch", "live")}
        assert (model["drain"]["running"], model["drain"]["may_outlive"]) == (0, 0)
        assert standing(daemon.status()) == standing(before)
        assert [each["id"] for each in daemon.receipts()] == ["r1"]
        daemon.write(wanted.read_text())
        status, receipt = daemon.reload("closed")
        assert (status, receipt["outcome"]) == (0, "applied")
        receipts = [daemon.command("receipts", each["id"])[1] for each in daemon.receipts()]
        done = next(each for each in receipts if each["outcome"] == "applied" and each["id"] != "r1")
        steps = {step["name"]: step for step in done["models"][0]["steps"]}
        (device,) = plan["devices"]
        assert steps["load"]["expected_bytes"] == model["at_start"]["grows_bytes"]
        expected, returned = steps["reclaim"]["expected_bytes"], steps["reclaim"]["returned_bytes"]
        assert 0 < expected <= device["now"]["total_bytes"], "the whole pool was granted, a part of it touched"
        assert abs(expected - returned) <= max(0.02 * expected, 16 << 20)
        assert device["peak"]["total_bytes"] == device["now"]["total_bytes"] + model["at_start"]["total_bytes"]
        assert done["models"][0]["load"] == model["load"]
        memory = daemon.status()["memory"]
        assert {key: memory["chat#2"][key] for key in ("weights", "kv")} == {
            key: model["after"][f"{key}_bytes"] for key in ("weights", "kv")
        }
        measured = memory["chat#2"]["working"]
        assert abs(measured / model["after"]["working_bytes"] - 1) < 0.15, "as estimated, by and large"
        assert daemon.command("plan", str(wanted))[0] == 0
        assert daemon.command("plan")[1]["outcome"] == "unchanged"
        assert daemon.stop() == 0


@pytest.mark.slow
def test_a_plan_as_people_read_it_and_one_that_would_be_rejected(pair):
    port = free_port()
    with live(pair, text_of(pair, port, "a"), port) as daemon:
        daemon.until_serving()
        status, said, _ = halogend(daemon, "plan", "-", data=text_of(pair, port, "b"))
        assert status == 2
        assert "<stdin>: this would change" in said
        assert re.search(r"chat +replace +overlap", said)
        assert re.search(r"total +[\d,]+ +[\d,]+ +[\d,]+", said)
        assert max(map(len, said.splitlines())) <= 120
        status, said, _ = halogend(daemon, "plan", "-", data=text_of(pair, port, "a", max_batchh=3))
        assert status == 1
        assert re.search(r"<stdin>:\d+:\d+: HCF-1007: unknown key 'max_batchh'", said)
        with socket.create_server(("127.0.0.1", 0)) as busy:
            status, plan = daemon.command("plan", str(written(pair, text_of(pair, busy.getsockname()[1], "a"))))
        assert (status, plan["outcome"], plan["problems"][0]["code"]) == (1, "rejected", "HRT-1008")
        assert plan["problems"][0]["line"]
        status, plan = daemon.command("plan", str(written(pair, text_of(pair, free_port(), "a"))))
        assert [change["class"] for change in plan["server_changes"]] == ["listener"]
        assert (status, [each["action"] for each in plan["models"]]) == (2, ["keep"])
        assert halogend(daemon, "plan", "nowhere.yaml")[0::2] == (
            1,
            "halogend plan: nowhere.yaml: No such file or directory\n",
        )
        assert halogend(daemon, "plan", "--what")[0] == 1
        assert halogend(daemon, "plan")[0] == 0
        assert daemon.stop() == 0
    status, _, said = halogend(daemon, "plan")
    assert status == 1
    assert "no daemon answers" in said


def written(folder, text):
    (folder / "wanted.yaml").write_text(text)
    return folder / "wanted.yaml"


@pytest.mark.slow
def test_hold_rollback_and_resume_from_the_command_line(pair):
    port = free_port()
    with live(pair, text_of(pair, port, "a"), port) as daemon:
        daemon.until_serving()
        daemon.write(text_of(pair, port, "a", max_batch=7))
        assert daemon.reload("closed")[0] == 0
        status, plan = daemon.command("rollback", "--dry-run")
        assert (status, plan["source"]) == (2, "kept:r1")
        status, receipt = daemon.command("rollback", "--hold")
        assert (status, receipt["outcome"], receipt["trigger"]) == (0, "applied", "rollback")
        assert receipt["actor"] == f"uid:{os.getuid()}"
        said = halogend(daemon, "status")[1]
        assert f"by uid:{os.getuid()}; `halogend resume` frees them" in said
        assert f"drift: this is the document of {receipt['id']}" in said
        daemon.write(text_of(pair, port, "a", max_batch=9))
        until(lambda: daemon.status()["hold"]["put_off"], "the edit is put off")
        status, put_off = daemon.reload()
        assert (status, put_off["outcome"], put_off["problems"][0]["code"]) == (1, "rejected", "HRT-1018")
        os.kill(daemon.pid, signal.SIGHUP)
        until(lambda: daemon.receipts()[0]["trigger"] == "signal", "the signal is put off")
        assert daemon.command("reload", "--dry-run")[1]["hold"]["put_off"]
        status, resumed = daemon.command("resume")
        assert (status, resumed["outcome"], resumed["trigger"]) == (0, "applied", "resume")
        assert {c["field"]: c["new"] for c in resumed["models"][0]["changes"]}["max_batch"] == 9
        status, said, _ = halogend(daemon, "resume")
        assert (status, said) == (0, "changes are free; nothing was put off\n")
        assert (daemon.status()["hold"], daemon.status()["drift"]) == (None, None)
        assert halogend(daemon, "rollback", "r77")[0::2] == (1, "There is no receipt `r77`; old ones are dropped.\n")
        assert daemon.command("hold")[1]["hold"]["put_off"] is False
        assert daemon.command("reload", "--force")[1]["outcome"] == "unchanged"
        assert daemon.stop() == 0


@pytest.mark.slow
@pytest.mark.slow
def test_what_a_killed_daemon_knew_the_next_one_knows(pair):
    port = free_port()
    with restarted(pair, port, text_of(pair, port, "a")) as daemon:
        daemon.until_serving()
        daemon.write(text_of(pair, port, "a", max_batch=7))
        assert daemon.reload("closed")[0] == 0
        daemon.command("hold")
        until(lambda: b"uid:" in (pair / "state/state.json").read_bytes(), "the hold is on disk")
        known = [(each["id"], each["outcome"], each["trigger"]) for each in daemon.receipts()]
        daemon.process.kill()
        daemon.process.wait()
    with restarted(pair, port, "models: [") as daemon:
        daemon.until_serving()
        assert [(each["id"], each["outcome"], each["trigger"]) for each in daemon.receipts()][-len(known) :] == known
        newest = daemon.receipts()[0]
        assert newest["source"].startswith("kept:")
        assert daemon.status()["hold"]["put_off"]
        assert daemon.command("rollback", "r1")[1]["outcome"] == "applied"
        assert daemon.command("resume")[1]["outcome"] == "rejected"
        assert daemon.stop() == 0
    with restarted(pair, port, "models: [") as daemon:
        assert daemon.process.wait(60) == Exit.BAD_DOCUMENT
    with restarted(pair, port, "models: [", "--resume") as daemon:
        daemon.until_serving()
        assert [each["outcome"] for each in daemon.receipts()[:2]] == ["applied", "rejected"]
        assert "the source cannot be used" in halogend(daemon, "status")[1]
        assert "starting_from_last_active" in daemon.log.read_text()
        assert daemon.stop() == 0
    (pair / "state/state.json").write_text("not ours")
    with restarted(pair, port, text_of(pair, port, "b")) as daemon:
        daemon.until_serving()
        assert "state_file_set_aside" in daemon.log.read_text()
        assert len(daemon.receipts()) > len(known)
        assert daemon.stop() == 0
