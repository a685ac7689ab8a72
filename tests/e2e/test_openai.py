"""The `openai` package against the real thing: chat and completions, streamed and not."""

import openai
import pytest
from support.live import document, live
from support.ports import free_port
from support.tiny_models import CHAT_TEMPLATE, tiny_llama


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("openai"), free_port()
    tiny_llama(folder / "m.gguf", chat_template=CHAT_TEMPLATE)
    model = {"name": "m", "model": f"{folder}/m.gguf", "precision": "fp32", "max_prompt_len": 200}
    with live(folder, document(port, model), port) as daemon:
        daemon.until_serving()
        with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as made:
            yield made


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
GREEDY = {"model": "m", "temperature": 0, "max_tokens": 24}


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == "m"
    assert client.models.retrieve("m").id == "m"


def test_chat_streamed_and_not_say_the_same_and_count_the_same(client):
    whole = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(messages=MESSAGES, **GREEDY, **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    streamed = chunks[-1].usage
    assert (streamed.prompt_tokens, streamed.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    assert streamed.prompt_tokens_details.cached_tokens >= 16  # a full block of what the first call computed
    assert whole.usage.prompt_tokens > 10
    if whole.choices[0].finish_reason == "length":
        assert whole.usage.completion_tokens == 24
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_completions_streamed_and_not_say_the_same(client):
    whole = client.completions.create(prompt="alpha beta", **GREEDY)
    chunks = list(client.completions.create(prompt="alpha beta", stream=True, **GREEDY))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_stop_string_is_neither_shown_nor_anything_after_it(client):
    whole = client.completions.create(prompt="alpha beta", **GREEDY).choices[0].text
    stop = whole[len(whole) // 2 :][:3]
    cut = client.completions.create(prompt="alpha beta", stop=[stop], **GREEDY)
    assert cut.choices[0].text == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_a_seed_gives_the_same_text_again(client):
    def sampled(seed):
        answer = client.completions.create(prompt="alpha", model="m", temperature=1.5, seed=seed, max_tokens=24)
        return answer.choices[0].text

    assert sampled(7) == sampled(7)
    assert len({sampled(seed) for seed in range(5)}) > 1


def test_errors_are_typed(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="x", messages=MESSAGES)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="m", prompt="alpha " * 400)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as field:
        client.chat.completions.create(messages=MESSAGES, n=2, **GREEDY)
    assert field.value.param == "n"
