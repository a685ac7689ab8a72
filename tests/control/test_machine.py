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


def test_both_versions_at_once_count_together(machine):
    """The hybrid layout: version 2 without the memory controller, which version 1 has."""
    found = machine(
        {
            "proc/self/cgroup": "4:memory:/box\n0::/system.slice/halogend.service\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{5 * GIB}\n",
            "sys/fs/cgroup/unified/system.slice/halogend.service/memory.max": f"{4 * GIB}\n",
        }
    )
    assert found.devices[0].memory_bytes == 4 * GIB


def test_v2_soft_limits_are_limits_too(machine):
    """Above memory.high the kernel throttles: whoever plans with more stands still."""
    found = machine(
        {
            "proc/self/cgroup": "0::/box\n",
            "sys/fs/cgroup/box/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/box/memory.high": f"{7 * GIB}\n",
        }
    )
    assert found.devices[0].memory_bytes == 7 * GIB


@pytest.mark.parametrize("path", ["/", "/../..", "/docker/0123abc"])
def test_a_path_of_another_namespace_is_looked_up_from_the_root_that_is_mounted(machine, path):
    """A container sees its own group as the root of the mount, whatever its path says."""
    found = machine({"proc/self/cgroup": f"0::{path}\n", "sys/fs/cgroup/memory.max": f"{2 * GIB}\n"})
    assert found.devices[0].memory_bytes == 2 * GIB


def test_l15_the_host_s_limits_and_use_are_looked_up_once_and_never_again(machine, tmp_path):
    """Two engines that start at once must not take each other's memory for free memory: what is foreign was
    foreign before either was there."""
    found = machine({})
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1 kB\nMemAvailable: 1 kB\n")
    assert found.devices[0].memory_bytes == 16 * GIB
    assert found.devices[0].foreign_bytes == 4 * GIB


@pytest.mark.parametrize(("flags", "expected"), [("fpu avx512_bf16", True), ("amx_bf16", True), ("avx512f", False)])
def test_bf16_is_read_from_the_processors_flags(machine, flags, expected):
    assert machine({}, flags=flags).has_bf16 is expected


def test_the_host_is_a_device_with_all_cores_and_holds_nobody_to_them(machine):
    found = machine({})
    assert found.host is found.devices[0]
    assert found.cores == found.cores_of("cpu:0") == len(found.host.cores) >= 1
    assert found.pins("cpu:0") == ()
