"""What a compiled kernel takes: registers, memory on the chip, and what did not fit into registers.

Reads machine code, needs no device: NVIDIA's by the cuobjdump that comes with Triton, AMD's from the metadata in
the text of its assembly (https://llvm.org/docs/AMDGPUUsage.html, code object metadata). Spilled registers go to
memory and back, which is never what was meant; `faults` says so.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from halogen_kernels.triton.targets import Target

_REGISTER_BYTES = 4
_CUDA = re.compile(r"\bREG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)\s+LOCAL:(\d+)")


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers` of a thread (vector registers on AMD), `shared_bytes` of a program, `spilled` what a thread keeps
    in memory for want of registers: bytes on NVIDIA, registers on AMD."""

    registers: int
    shared_bytes: int
    spilled: int

    def faults(self, target: Target) -> list[str]:
        """What is wrong with it, in words."""
        found = []
        if self.spilled:
            found.append(f"spills {self.spilled} {'bytes' if target.backend == 'cuda' else 'registers'}")
        if self.shared_bytes > target.shared_bytes:
            found.append(f"wants {self.shared_bytes} bytes of shared memory, {target.name} has {target.shared_bytes}")
        return found


def resources_of(compiled: Any, target: Target) -> Resources:
    """`compiled` is Triton's CompiledKernel. Raises ValueError for code that does not say."""
    shared = int(compiled.metadata.shared)
    if target.backend == "cuda":
        registers, spilled = _of_cubin(compiled.asm["cubin"])
    else:
        registers, spilled = of_amdgcn(compiled.asm["amdgcn"])
    return Resources(registers, shared, spilled)


def _of_cubin(cubin: bytes) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        tool = triton.knobs.nvidia.cuobjdump.path
        told = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return of_cuobjdump(told)


def of_cuobjdump(text: str) -> tuple[int, int]:
    """(registers, bytes of the stack and of local memory) of the one kernel that `text` is about."""
    found = _CUDA.search(text)
    if found is None:
        raise ValueError(f"cuobjdump says no resource usage: {text[:200]!r}")
    registers, stack, _, local = map(int, found.groups())
    return registers, stack + local


def of_amdgcn(text: str) -> tuple[int, int]:
    """(vector registers, registers in memory) of the one kernel in `text`: those that the compiler says it spilled, or
    as many as a thread's own memory holds, if that is more. Scalar registers that there are too few of are kept in the
    lanes of vector registers; they count if a thread has memory of its own at all."""

    def number(key: str) -> int:
        found = re.search(rf"^\s*\.{key}:\s*(\d+)", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"the assembly has no .{key}")
        return int(found[1])

    registers, spilled = number("vgpr_count"), number("vgpr_spill_count")
    own_bytes = number("private_segment_fixed_size")
    if own_bytes:
        spilled += number("sgpr_spill_count")
    return registers, max(spilled, -(-own_bytes // _REGISTER_BYTES))
