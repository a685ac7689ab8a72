"""Each field of a model's policy is changed on a real daemon under load: at once, and no token is lost."""

import asyncio
import statistics
import time

import httpx
import pytest
from support.live import document, live
from support.policies import OTHER
from support.ports import free_port
from support.tiny_models import tiny_llama

TOKENS, CLIENTS = 40, 6
PROMPTS = [f"{word} {number} " * length for number, (word, length) in enumerate([("alpha", 1), ("beta", 30)] * 3)]


async def ask(client, number):
    body = {"model": "m", "prompt": PROMPTS[number], "max_tokens": TOKENS, "temperature": 0}
    answer = await client.post("/v1/completions", json=body, headers={"x-halogen-session": f"s-{number}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def said(client, number):
    return (await ask(client, number))["choices"][0]


class Load:
    """Closed-loop clients, one a prompt; `alone` is what each got while nobody else asked."""

    def __init__(self, url, alone):
        self.url, self.alone = url, alone
        self.answered = 0
        self.came = asyncio.Event()
        self.wrong = []
        self.stops = False

    async def run(self):
        async with httpx.AsyncClient(base_url=self.url, timeout=120) as client:
            await asyncio.gather(*(self._client(client, number) for number in range(CLIENTS)))

    async def more(self):
        """Returns when each client could have had an answer since."""
        wanted = self.answered + CLIENTS
        while self.answered < wanted:
            self.came.clear()
            async with asyncio.timeout(60):
                await self.came.wait()

    async def _client(self, client, number):
        while not self.stops:
            got = await said(client, number)
            self.answered += 1
            self.came.set()
            if got != self.alone[number]:
                self.wrong.append((number, got))


@pytest.mark.slow
async def test_every_policy_is_live_under_load_in_under_a_second_and_no_token_is_lost(tmp_path):
    port = free_port()
    tiny_llama(tmp_path / "m.gguf", layers=2)
    model = {"name": "m", "model": f"{tmp_path}/m.gguf", "precision": "fp32", "max_batch": 4, "kv_cache_bytes": "8MiB"}
    with live(tmp_path, document(port, model), port) as daemon:
        daemon.until_serving()
        async with httpx.AsyncClient(base_url=daemon.url, timeout=60) as client:
            alone = [await said(client, number) for number in range(CLIENTS)]
            usage = (await ask(client, 1))["usage"]  # the longer prompt, for the second time
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert 16 <= cached < usage["prompt_tokens"]
        assert cached % 16 == 0
        load = Load(daemon.url, alone)
        running = asyncio.create_task(load.run())
        transport = httpx.AsyncHTTPTransport(uds=daemon.admin.removeprefix("unix:"))
        took, changes = {}, dict(OTHER, back={})
        async with httpx.AsyncClient(transport=transport, base_url="http://admin", timeout=60) as admin:
            for name, fields in changes.items():
                began = time.monotonic()
                text = document(port, {**model, **fields})
                answer = await admin.put("/admin/v1/document?wait=serving", content=text)
                took[name] = time.monotonic() - began
                assert answer.json()["outcome"] == "applied", answer.text
                await load.more()
            (pool,) = (await admin.get("/admin/v1/cache")).json()["models"]["m"]
            load.stops = True
            await running
        assert load.wrong == []
        assert load.answered > len(changes) * CLIENTS
        assert pool["generation"] == 1
        assert pool["prefix"]["hit_tokens"] > cached
        assert pool["blocks_used"] + pool["blocks_cached"] + pool["blocks_free"] == pool["blocks_total"]
        assert statistics.median(took.values()) < 1.0, took
