"""The line that a waiting command shows on a terminal, and only there."""

import io

from halogend.cli.admin import Endpoint
from halogend.cli.follow import Told
from halogend.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def loaded(at, done):
    data = {"model": "chat", "generation": 2, "stage": "loading", "loaded_bytes": done << 20, "total_bytes": 400 << 20}
    return Told("progress", {"at": at, **data})


def test_a_load_shows_bytes_rate_and_the_time_left():
    out = Terminal()
    with Progress(Endpoint("unix:/nowhere"), out, columns=100) as progress:
        progress.hear(loaded(10.0, 100))
        assert out.getvalue().endswith("\r\x1b[Kchat: generation 2 loading, 25 % (100 MiB of 400 MiB)")
        progress.hear(loaded(12.0, 200))
        assert out.getvalue().endswith("50 % (200 MiB of 400 MiB), 50 MiB/s, 4 s left")
        step = {"at": 0.0, "receipt": "r2", "model": "chat", "name": "drain", "phase": "began"}
        progress.hear(Told("step", step))
        progress.hear(Told("hello", {"gap": False}))
        assert out.getvalue().endswith("\r\x1b[Kchat: drain began")
    assert out.getvalue().endswith("\r\x1b[K")
    before = out.getvalue()
    progress.hear(loaded(13.0, 300))  # heard too late to be shown
    assert out.getvalue() == before


def test_where_there_is_no_terminal_nothing_is_written_and_nobody_is_asked():
    out = io.StringIO()
    with Progress(Endpoint("unix:/nowhere"), out):
        pass
    assert out.getvalue() == ""


def test_a_line_is_never_longer_than_the_screen():
    out = Terminal()
    with Progress(Endpoint("unix:/nowhere"), out, columns=20) as progress:
        progress.hear(loaded(10.0, 100))
        assert len(out.getvalue().rpartition("\x1b[K")[2]) == 19
