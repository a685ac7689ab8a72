"""Memory and processor as a folder describes them: cgroup v1, v2, nested, unlimited, none."""

import pytest

from halogend.control.machine import probe

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A factory: files under a root -> what `probe` finds there."""

    def make(files, total=16 * GIB, available=12 * GIB, flags="fpu avx2"):
        meminfo = f"MemTotal: {total >> 10} kB\nMemFree: 1 kB\nMemAvailable: {available >> 10} kB\n"
        fixed = {"proc/meminfo": meminfo, "proc/cpuinfo": f"processor : 0\nflags\t\t: {flags}\n"}
        for name, text in (fixed | files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return probe(tmp_path)

    return make


def test_without_control_groups_memory_is_the_machines(machine):
    (cpu,) = machine({}).devices
    assert (cpu.id, cpu.memory_bytes, cpu.foreign_bytes) == ("cpu:0", 16 * GIB, 4 * GIB)
    assert cpu.reserve_bytes == int(1.6 * GIB)


def test_v2_the_smallest_limit_up_the_path_counts(machine):
    found = machine(
        {
            "proc/self/cgroup": "0::/system.slice/halogend.service\n",
            "sys/fs/cgroup/system.slice/memory.max": f"{6 * GIB}\n",
            "sys/fs/cgroup/system.slice/halogend.service/memory.max": f"{8 * GIB}\n",
        }
    )
    assert found.devices[0].memory_bytes == 6 * GIB


def test_v2_max_is_no_limit(machine):
    found = machine({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"})
    assert found.devices[0].memory_bytes == 16 * GIB


def test_v1_reads_the_memory_controllers_path_only(machine):
    found = machine(
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/elsewhere\n3:memory:/box\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes": f"{1 * GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    assert found.devices[0].memory_bytes == 3 * GIB


@pytest.mark.parametrize(("flags", "expected"), [("fpu avx512_bf16", True), ("amx_bf16", True), ("avx512f", False)])
def test_bf16_is_read_from_the_processors_flags(machine, flags, expected):
    assert machine({}, flags=flags).has_bf16 is expected


def test_the_host_is_a_device_with_all_cores_and_holds_nobody_to_them(machine):
    found = machine({})
    assert found.host is found.devices[0]
    assert found.cores == found.cores_of("cpu:0") == len(found.host.cores) >= 1
    assert found.pins("cpu:0") == ()
