"""What a text process loads: the tokenizer, and a chat template that is known to work."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from halogend.checkpoint import gguf_keys
from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.own_text import TEMPLATE_KEY, open_text
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.text.chat import ChatTemplate
from halogend.text.offload import Offload
from halogend.text.progress import Progress
from halogend.text.renderer import Renderer
from halogend.text.tokenizer import Tokenizer
from halogend.wire.process import nice_thread
from halogend.wire.specs import TextSpec


@dataclass(frozen=True, slots=True)
class Loaded:
    """`own_template` is the checkpoint's, as Jinja source."""

    tokenizer: Tokenizer
    renderer: Renderer
    offload: Offload
    own_template: str | None
    load_s: float


def load(spec: TextSpec, progress: Progress) -> Loaded:
    """A second or two of CPU; to be run in a thread of its own, which it slows down for good.

    Raises CheckpointError.
    """
    nice_thread(spec.loader_niceness)
    progress.loader.follow()
    start = time.monotonic()
    gc.disable()  # a million objects are made here and none is garbage: a quarter of the time
    try:
        tokenizer, own = read_text(spec.path, spec.load_format, progress.bump)
    finally:
        gc.freeze()  # and they stay: nobody's answer waits while they are walked to look for some
        gc.enable()
        _give_back()
        progress.loader.leave()
    return Loaded(tokenizer, Renderer(), Offload(progress.bump), own, time.monotonic() - start)


def _give_back() -> None:
    """What was needed only to build, a hundred megabytes and more of it, goes back to the system where
    the C library can be told to (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def read_text(path: str, load_format: str, bump: Callable[[], None]) -> tuple[Tokenizer, str | None]:
    """The tokenizer, and the checkpoint's own template; `bump` is called between them. Raises CheckpointError."""
    text = open_text(path, load_format)
    if isinstance(text, GgufHeader):
        bump()
        tokenizer = Tokenizer.from_header(text)
        own = gguf_keys.text(text, TEMPLATE_KEY) if text.has(TEMPLATE_KEY) else None
    else:
        files = read_text_files(text)
        bump()
        tokenizer, own = Tokenizer.from_files(files), files.template
    bump()
    return tokenizer, own


async def first_template(loaded: Loaded, chosen: str | None) -> ChatTemplate | None:
    """The template `chosen` (Jinja source or a built-in name), else the checkpoint's own, else None.
    Raises StartFailedError for one that does not work."""
    template = _template(loaded, chosen)
    if template is not None:
        await template.probe(loaded.renderer)
    return template


async def next_template(loaded: Loaded, chosen: str | None, present: ChatTemplate | None) -> ChatTemplate | None:
    """As `first_template`, while requests are served. The `present` one is known to work; another is
    tried in a process of its own, so as not to wait for requests that are being rendered."""
    template = _template(loaded, chosen)
    if template is None or (present is not None and template.source == present.source):
        return template if template is None else present
    prober = Renderer()
    try:
        await template.probe(prober)
    finally:
        await prober.close()
    return template


def _template(loaded: Loaded, chosen: str | None) -> ChatTemplate | None:
    source = loaded.own_template if chosen is None else chosen
    return None if source is None else ChatTemplate(source, loaded.tokenizer, loaded.renderer, loaded.offload)
