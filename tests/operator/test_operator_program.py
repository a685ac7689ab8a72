"""`python -m halogen_operator`: a process of its own, stopped by a signal; and tokens that change while it runs."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import signal
import socket
import sys
from pathlib import Path

import aiohttp
from fakekube import FakeKube
from halogen_operator import login
from support.operators import conditions, eventually, halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods
from support.ports import free_port


def _program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "halogen_operator", "--all-namespaces", *arguments]


async def test_a_process_reconciles_and_ends_well_at_sigterm() -> None:
    async with FakeKube() as kube:
        kube.objects.create(halogen_model(replicas=0))
        process = await asyncio.create_subprocess_exec(
            *_program("--server", kube.url, "--host", "127.0.0.1", "--port", "0"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "POD_NAME": "operator-0"},
        )
        try:
            await kube.until(lambda: conditions(kube).get("Ready") == ("True", "ScaledToZero"), 60.0)
            process.send_signal(signal.SIGTERM)
            output, _ = await asyncio.wait_for(process.communicate(), 30.0)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, output.decode()
        assert "operator_stopped" in output.decode()
        assert kube.objects.list("Event", "default")[0]["reportingInstance"] == "operator-0"


async def test_files_that_the_runtime_begins_with_are_too_few_for_many_pods() -> None:
    """Without one left nothing is asked or written any more, and no probe is answered."""
    async with FakeKube() as kube:
        program = shlex.join(_program("--server", kube.url, "--host", "127.0.0.1", "--port", "0"))
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f"ulimit -Sn 64; exec {program}", stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert b"operator_started" in await asyncio.wait_for(process.stdout.readline(), 60.0)
            soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        finally:
            process.kill()
            await process.communicate()
        assert soft == hard != 64


async def test_without_a_way_to_the_server_the_process_says_which_ways_there_are() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    process = await asyncio.create_subprocess_exec(
        *_program(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"--kubeconfig FILE or --server URL" in errors


async def test_what_the_operator_cannot_start_with_is_one_line_for_people(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: b}}], clusters: [{name: b, cluster: "
        "{server: 'https://127.0.0.1:1', certificate-authority-data: aGVsbG8=}}]}"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, words in (
            (("--kubeconfig", str(kubeconfig)), "certificate-authority of the kubeconfig holds no certificate"),
            (("--server", "127.0.0.1:8001"), "127.0.0.1:8001 does not begin with http:// or https://"),
            (("--server", "http://127.0.0.1:1", "--host", "127.0.0.1", "--port", port), "address already in use"),
        ):
            process = await asyncio.create_subprocess_exec(
                *_program(*arguments), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            _, errors = await process.communicate()
            assert process.returncode == 2
            assert words in errors.decode()
            assert "Traceback" not in errors.decode()


async def test_a_token_that_is_renewed_while_the_operator_runs_is_used(tmp_path: Path) -> None:
    port, moments = free_port(), [0.0]
    (tmp_path / "token").write_text("one")
    async with FakeKube(tokens={"one"}) as kube, PlayedPods(kube, port):
        kube.objects.create(halogen_model())
        access = login.Access(kube.url, token=login.TokenFile(tmp_path / "token", lambda: moments[0]))
        async with running(quick(kube.url, admin_port=port), access):
            await kube.until(lambda: is_ready(kube))
            kube.tokens = {"two"}
            kube.cut_watches()
            kube.objects.create(halogen_model("second"))
            await eventually(lambda: any(call.status == 401 for call in kube.calls) or not kube.watches)
            (tmp_path / "token").write_text("two")
            moments[0] = 61.0
            await kube.until(lambda: is_ready(kube, "second"))


async def test_an_operator_waits_for_its_kind_to_be_there() -> None:
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port), aiohttp.ClientSession() as session:
        name = "halogenmodels.halogen.dev"
        definition = kube.objects.get("CustomResourceDefinition", name)
        kube.objects.delete("CustomResourceDefinition", name)
        async with running(quick(kube.url, admin_port=port)) as operator:
            async with session.get(f"{operator.started.address}/readyz") as told:
                assert told.status == 503
            await eventually(lambda: b"watch_restarts_total 0.0" not in operator.started.metrics.render())
            fresh = {key: definition[key] for key in ("apiVersion", "kind", "spec")}
            kube.objects.create({**fresh, "metadata": {"name": name}})
            kube.objects.create(halogen_model())
            await kube.until(lambda: is_ready(kube))
