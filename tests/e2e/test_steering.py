"""Plan, rollback, hold, and what outlives a restart, from the command line of a real daemon."""

import subprocess
import sys

import pytest
from support.live import document, free_port, live
from support.tiny_models import tiny_gemma3, tiny_llama


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
        assert daemon.status()["models"] == before["models"]
        assert [each["id"] for each in daemon.receipts()] == ["r1"]
        daemon.write(wanted.read_text())
        status, receipt = daemon.reload("closed")
        assert (status, receipt["outcome"]) == (0, "applied")
        receipts = [daemon.command("receipts", each["id"])[1] for each in daemon.receipts()]
        done = next(each for each in receipts if each["outcome"] == "applied" and each["id"] != "r1")
        steps = {step["name"]: step for step in done["models"][0]["steps"]}
        (device,) = plan["devices"]
        assert steps["load"]["expected_bytes"] == model["at_start"]["total_bytes"]
        assert steps["reclaim"]["expected_bytes"] == device["now"]["total_bytes"]
        assert device["peak"]["total_bytes"] == device["now"]["total_bytes"] + model["at_start"]["total_bytes"]
        assert done["models"][0]["load"] == model["load"]
        memory = daemon.status()["memory"]
        assert {key: memory["chat#2"][key] for key in ("weights", "working", "kv")} == {
            key: model["after"][f"{key}_bytes"] for key in ("weights", "working", "kv")
        }
        assert daemon.command("plan", str(wanted))[0] == 0
        assert daemon.command("plan")[1]["outcome"] == "unchanged"
        assert daemon.stop() == 0
