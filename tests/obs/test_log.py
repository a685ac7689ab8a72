"""Log lines: which stream, which form."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from halogend.obs import log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    handlers = logging.getLogger().handlers[:]
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_the_daemon_splits_routine_and_errors() -> None:
    routine, errors = io.StringIO(), io.StringIO()
    log.configure_daemon(routine=routine, errors=errors)
    logger = structlog.get_logger("x")
    logger.debug("not_shown")
    logger.info("model_switched", model="chat", path="/modèle")
    logger.warning("load_slow")
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        logger.exception("it_broke", attempt=2)
    assert [(line["event"], line["level"]) for line in lines(routine)] == [
        ("model_switched", "info"),
        ("load_slow", "warning"),
    ]
    assert "/modèle" in routine.getvalue()
    (error,) = lines(errors)
    assert (error["event"], error["attempt"]) == ("it_broke", 2)
    assert "ZeroDivisionError" in str(error["exception"])
    assert str(error["timestamp"]).endswith("Z")


def test_a_worker_says_everything_on_one_stream_with_its_role() -> None:
    stream = io.StringIO()
    log.configure_worker("text", stream=stream, level="debug")
    structlog.get_logger().debug("a")
    structlog.get_logger().error("b", role="other")
    assert [(line["event"], line["role"]) for line in lines(stream)] == [("a", "text"), ("b", "other")]


def test_a_terminal_gets_lines_for_people() -> None:
    stream = Terminal()
    log.configure_daemon(routine=stream, errors=stream)
    structlog.get_logger().info("model_switched", model="chat")
    assert "model_switched" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_traceback_never_shows_what_variables_held(kind: type[io.StringIO]) -> None:
    stream = kind()
    log.configure_daemon(routine=stream, errors=stream)

    def answer(prompt: str) -> float:
        key = prompt[::-1]
        return len(key) / 0

    prompt = "whispered-secret"
    try:
        answer(prompt)
    except ZeroDivisionError:
        structlog.get_logger().exception("it_broke")
        logging.getLogger("uvicorn.error").exception("it broke there")
    said = stream.getvalue()
    assert said.count("ZeroDivisionError") >= 2
    assert said.count("in answer") == 2
    assert prompt not in said
    assert prompt[::-1] not in said


def test_what_libraries_say_comes_through_once() -> None:
    routine, errors = io.StringIO(), io.StringIO()
    log.configure_daemon(routine=routine, errors=errors)
    log.configure_daemon(routine=routine, errors=errors)
    logging.getLogger("uvicorn.error").warning("odd %s", "thing")
    logging.getLogger("uvicorn.error").info("chatter")
    logging.getLogger("asyncio").error("bad")
    (line,) = lines(routine)
    assert (line["event"], line["library"], line["message"]) == ("library_log", "uvicorn.error", "odd thing")
    assert lines(errors)[0]["message"] == "bad"


def test_a_line_is_one_to_every_reader() -> None:
    """Some cut as str.splitlines does; and half of a surrogate pair could not be written."""
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8")
    log.configure_worker("text", stream=stream)
    words = "a\u0085b\u2028c\u2029d\ud800é"
    structlog.get_logger().info("said", words=words)
    [line] = raw.getvalue().decode().splitlines()
    assert json.loads(line)["words"] == words
    assert "é" in line
