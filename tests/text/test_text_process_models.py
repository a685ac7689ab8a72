"""The text process with the two real models."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.llamacpp import llama_post, llama_server, llama_tokenize
from support.text_process import chat, text, text_process
from support.text_samples import samples

from halogend.checkpoint.gguf import read_header
from halogend.text.tokenizer import Tokenizer
from halogend.wire.control import Progress, TextReady
from halogend.wire.requests import Accepted, ChatPrompt, Delta, Ended, Finished, Prompt

pytestmark = pytest.mark.models


def test_an_answer_of_all_scripts_comes_back_token_by_token(smollm2: Path):
    answer = "".join(samples()[:140])
    tokenizer = Tokenizer.from_header(read_header(smollm2))
    ids = tokenizer.encode(answer, add_special=False, parse_special=False)
    with text_process() as process:
        assert process.start(smollm2).has_chat_template
        process.submit(1, "Say everything.", max_tokens=len(ids))
        assert process.generate().stop_ids == tuple(sorted(tokenizer.end_ids))
        process.event()
        for token in ids[:-1]:
            process.step((1, token))
        process.step((1, ids[-1]), ended=(Ended(id=1, reason="length"),))
        shown, counted = "", 0
        while not isinstance(event := (events := process.events())[-1], Finished):
            assert len(events) == 1
            assert isinstance(event, Delta)
            shown, counted = shown + event.text, counted + event.tokens
        shown += "".join(event.text for event in events if isinstance(event, Delta))
    assert shown == answer
    assert (event.usage.completion_tokens, counted) == (len(ids), len(ids) - 1)


@pytest.mark.slow
def test_conversations_become_the_ids_that_llamacpp_makes_of_them(smollm2: Path):
    conversations = [
        chat("Hello"),
        chat("Hello", "Hi there!", "What is 2+2?"),
        *(chat(f"{sample}") for sample in samples()[::5] if "<" not in sample and "\ue000" not in sample),
    ]
    with text_process() as process, llama_server(smollm2, ctx=512) as url:
        process.start(smollm2)
        for index, prompt in enumerate(conversations):
            process.submit(index, prompt)
            assert process.generate().prompt_ids == theirs(url, prompt), prompt
    assert len(conversations) >= 40


def theirs(url: str, prompt: ChatPrompt) -> tuple[int, ...]:
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    rendered = llama_post(url, "/apply-template", {"messages": messages})["prompt"]
    return tuple(llama_tokenize(url, rendered, add_special=True, parse_special=True))


@pytest.mark.slow
def test_a_long_load_counts_as_moving(gemma: Path):
    with text_process() as process:
        process.begin(gemma)
        counters = []
        while not isinstance(message := process.control.next(), TextReady):
            assert isinstance(message, Progress)
            counters.append(message.counter)
    loading = [counter for counter in counters if counter > 1]
    assert len(loading) > 1
    assert len(set(loading)) == len(loading)


@pytest.mark.slow
def test_a_base_model_completes_and_does_not_chat(gemma: Path):
    with text_process() as process:
        ready = process.start(gemma)
        assert (ready.vocab_size, ready.has_chat_template) == (262_144, False)
        prompts: tuple[Prompt, ...] = (text("Hello"), text("<bos>Hello"))
        for request, prompt in enumerate(prompts):
            process.submit(request, prompt)
            assert process.generate().prompt_ids == (2, 9259)
            assert process.event() == Accepted(id=request, prompt_tokens=2)
        process.submit(5, "Hello")
        refused = process.event()
        assert isinstance(refused, Finished)
        assert refused.failure is not None
        assert refused.failure.code == "no_chat_template"
