"""What must be known beyond the document's own text to judge it, as plain values.

Filled in by the control package, which may open files and ask devices; read by the rules, which
may not. A value that could not be learnt is None and its rules are skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an input cannot be used: a code (HCK for checkpoints), a sentence and a remedy."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file whose pages serve as weights: whoever else maps it shares them. `volume` and `inode` as stat(2) has
    them."""

    volume: int
    inode: int
    bytes: int


def mapped_bytes(mapped: Iterable[MappedFile], shared: Iterable[MappedFile] = ()) -> int:
    """What these take of one memory: a file that several have mapped is there once, the most of it that one of them
    has. What is counted as `shared` already is not counted again."""
    files: dict[tuple[int, int], int] = {}
    for each in mapped:
        key = each.volume, each.inode
        files[key] = max(files.get(key, 0), each.bytes)
    for each in shared:
        key = each.volume, each.inode
        files[key] = max(0, files.get(key, 0) - each.bytes)
    return sum(files.values())


BLOCK_TOKENS = 16  # positions in a block of KV memory
_LEAST_RESERVE_BYTES = 512 << 20
_RESERVE_SHARES = MappingProxyType({"cpu": 0.10, "cuda": 0.05, "rocm": 0.05})


def reserve_bytes(kind: str, memory_bytes: int) -> int:
    """What is kept free of a device's own memory where the document does not say."""
    return max(_LEAST_RESERVE_BYTES, int(memory_bytes * _RESERVE_SHARES[kind]))


@dataclass(frozen=True, slots=True)
class KvFacts:
    """What a request takes of KV memory. `block_bytes` is one block's size; `windows` has an entry for
    each table of blocks that a request holds, how many positions it sees (None: all);
    `step_tokens` the most positions of one request that a step computes."""

    block_bytes: int
    windows: tuple[int | None, ...]
    step_tokens: int

    def request_bytes(self, tokens: int) -> int:
        """The most that one request of `tokens` positions can hold. Never less for more tokens."""
        blocks = -(-tokens // BLOCK_TOKENS)
        return sum(min(blocks, self._most(window, blocks)) for window in self.windows) * self.block_bytes

    def pool_bytes(self, tokens: int, requests: int = 1) -> int:
        """A pool for `requests` of `tokens` positions each, with the one block that is never handed out."""
        return requests * self.request_bytes(tokens) + self.block_bytes

    def fitting_tokens(self, pool_bytes: int, most: int) -> int:
        """The longest request, up to `most` tokens, that a pool can hold; 0 if none. A whole number of
        blocks, or `most`."""
        lengths = range(BLOCK_TOKENS, most + BLOCK_TOKENS, BLOCK_TOKENS)
        count = bisect_right(lengths, pool_bytes, key=self.request_bytes)
        return min(most, count * BLOCK_TOKENS)

    def _most(self, window: int | None, blocks: int) -> int:
        """Blocks of one table in use in a step: `window` - 1 + `step_tokens` positions in a row that may
        begin with the last one of a block."""
        return blocks if window is None else -(-(window + self.step_tokens - 2) // BLOCK_TOKENS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model's files as they lie on disk.

    `fault` set: the checkpoint cannot be used, and the other values may all be None. `format` is
    what the magic bytes say (gguf, safetensors, v2, ...). `kv` is for the model's kv_cache_dtype on its
    device and its prefill_chunk. `working_bytes` is what a generation takes beside weights and KV, `host_bytes` what
    of the host's memory where the device has its own, `weight_bytes`
    what of its weights is its own; `mapped` are the others.
    """

    fault: Fault | None = None
    format: str | None = None
    architecture: str | None = None
    context_length: int | None = None
    has_chat_template: bool | None = None
    template_fault: Fault | None = None
    weight_bytes: int | None = None
    working_bytes: int = 0
    host_bytes: int = 0
    mapped: tuple[MappedFile, ...] = ()
    kv: KvFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device that is there. `memory_bytes` is what the machine has (a document may allow less),
    `reserve_bytes` what is kept free when the document does not say, `foreign_bytes` what others used
    at start, `aliases` other ids of the same device (`h100:0` for `cuda:0`), `cores` those of a cpu
    (empty: not known). `kind` is what drives it: cpu, cuda or rocm.

    Of an accelerator also: `name` as its vendor calls it, `product` as a document does (empty: none of ours),
    `arch` such as sm_90 or gfx1151, `address` what makes it the only one that a process sees, `slowdown_c` the
    temperature at which it slows down by itself (None: not told), and `unusable` why no engine can run on it.
    `in_host_memory`: its bytes are bytes of the host."""

    id: str
    memory_bytes: int
    reserve_bytes: int = 0
    foreign_bytes: int = 0
    aliases: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    kind: str = "cpu"
    name: str = ""
    product: str = ""
    arch: str = ""
    address: str = ""
    slowdown_c: float | None = None
    unusable: str = ""
    in_host_memory: bool = False

    @property
    def is_accelerator(self) -> bool:
        return self.kind != "cpu"

    @property
    def has_own_memory(self) -> bool:
        """Does a process that runs on it take memory of the host besides?"""
        return self.is_accelerator and not self.in_host_memory


@dataclass(frozen=True, slots=True)
class FileFact:
    """What is wrong with a file that the field at `path` of the document names; a mere `warning` is
    told and refuses nothing."""

    path: str
    fault: Fault
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`models` by model name; `files` are those of keys and certificates. `devices` holds every
    device of the machine, as the document divides it; None: not asked. `host` is its memory and cores
    undivided."""

    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    files: tuple[FileFact, ...] = ()
    devices: tuple[DeviceFacts, ...] | None = None
    host: DeviceFacts | None = None
