"""The peak that a plan is compared with: of all processes that live at one moment."""

import os
import subprocess
import sys

from torture.watch import Memory

HELD_BYTES = 64 << 20
HOLDS = f"held = bytearray(b'x' * {HELD_BYTES}); print('held', flush=True); input()"


def _holder() -> subprocess.Popen[bytes]:
    made = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout is not None
    made.stdout.readline()
    return made


def test_a_process_counts_at_the_reading_after_it_came():
    memory, plan = Memory(os.getpid()), {"devices": [{"peak": {"total_bytes": 1}}]}
    memory.look()
    memory.begin()
    with _holder() as old:
        memory.look()
        with _holder() as new:
            memory.look()
            new.communicate(b"\n")
        memory.look()
        old.communicate(b"\n")
    memory.look()
    peak = memory.peak("1 -> b.gguf", plan)
    assert peak.measured_bytes >= 2 * HELD_BYTES
    assert peak.planned_bytes == 1
