"""AMD's devices as a folder describes them."""

import subprocess

from support.fake_devices import GIB, MI300X, NODES, STRIX_HALO, amd, host, write

from halogend.control.devices import HOST, nominal_bytes_per_s
from halogend.control.devices_amd import look
from halogend.control.devices_look import command, read, take_look
from halogend.control.machine import probe


def both_built():
    return frozenset({"cuda", "rocm"})


def machine_of(root):
    return probe(root, builds=both_built)


def test_a_processor_s_node_is_no_device(tmp_path):
    host(tmp_path)
    assert look(tmp_path) == ()


def test_an_accelerator_with_memory_of_its_own(tmp_path):
    host(tmp_path)
    amd(tmp_path, [MI300X])
    (seen,) = look(tmp_path)
    assert (seen.kind, seen.number, seen.arch, seen.bus) == ("rocm", 0, "gfx942", "0000:05:00.0")
    assert (seen.memory_bytes, seen.used_bytes, seen.host_bytes) == (192 * GIB, 2 * GIB, 0)
    assert (seen.temperature_c, seen.slowdown_c) == (71.0, 100.0), "of the junction, not of the memory"
    assert (seen.clock_mhz, seen.power_w, seen.address) == (2100, 310.0, "GPU-8f3d1b2a5c4e7f60")
    assert [(link.kind, link.to, link.detail) for link in seen.links] == [("pcie", HOST, "gen 5 x16")]


def test_peers_are_linked_where_the_topology_says_so(tmp_path):
    host(tmp_path)
    amd(tmp_path, [MI300X, MI300X], xgmi_mb=64_000)
    one, other = look(tmp_path)
    assert nominal_bytes_per_s(one, other) == ("xgmi", 64e9)
    assert nominal_bytes_per_s(one) == ("pcie", 16 * 3.938e9)


def test_a_part_without_memory_of_its_own_takes_the_hosts(tmp_path):
    """One ledger with the host: it may take what its driver gives it, and what the host has free."""
    host(tmp_path, memory=128 * GIB, available=120 * GIB)
    amd(tmp_path, [STRIX_HALO])
    machine = machine_of(tmp_path)
    device, cpu = machine.devices
    assert (device.id, device.aliases, cpu.id) == ("ai_max_395:0", ("rocm:0",), "cpu:0")
    assert (device.product, device.arch, device.slowdown_c) == ("ai_max_395", "gfx1151", None)
    assert device.in_host_memory
    assert not device.has_own_memory
    assert device.memory_bytes == 96 * GIB
    free = device.memory_bytes - device.reserve_bytes - device.foreign_bytes
    assert free == 95 * GIB, "32 GiB that its driver would not give are reserve and foreign use enough"
    assert machine.runs_on("rocm:0") == "rocm:0"
    assert machine.environ_of("ai_max_395:0")["ROCR_VISIBLE_DEVICES"] == "0"


def test_what_its_firmware_cuts_off_is_its_own(tmp_path):
    host(tmp_path, memory=32 * GIB, available=30 * GIB)
    amd(tmp_path, [STRIX_HALO | {"mem_info_vram_total": 96 * GIB, "mem_info_gtt_total": 16 * GIB}])
    device = machine_of(tmp_path).devices[0]
    assert (device.id, device.aliases) == ("rocm:0", ("ai_max_395:0",))
    assert device.memory_bytes == 96 * GIB
    assert device.has_own_memory


def test_a_limit_of_the_control_group_limits_it_too(tmp_path):
    host(tmp_path)
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": 40 * GIB})
    amd(tmp_path, [STRIX_HALO])
    assert machine_of(tmp_path).devices[0].memory_bytes == 40 * GIB


def test_a_graphics_part_that_nobody_knows_is_shown_and_not_used(tmp_path):
    host(tmp_path)
    amd(tmp_path, [STRIX_HALO | {"properties": STRIX_HALO["properties"] | {"gfx_target_version": 110003}}])
    cpu, device = machine_of(tmp_path).devices
    assert (cpu.id, device.id, device.arch) == ("cpu:0", "rocm:0", "gfx1103")
    assert "none of the products" in device.unusable


def test_a_device_in_a_bad_state_says_nothing_and_harms_nobody(tmp_path):
    host(tmp_path)
    properties = MI300X["properties"] | {"max_waves_per_simd": "many"}
    amd(tmp_path, [{"properties": properties, "mem_info_vram_total": "not now"}])
    (seen,) = look(tmp_path)
    assert (seen.memory_bytes, seen.temperature_c, seen.links) == (0, None, ())
    assert seen.trouble


def test_the_look_is_another_process_s(tmp_path):
    host(tmp_path)
    amd(tmp_path, [MI300X])
    assert take_look(tmp_path).devices == look(tmp_path)


def test_who_follows_the_drivers_ends_with_whoever_asked(tmp_path):
    """A killed daemon leaves nobody behind: its end of the pipe goes with it."""
    host(tmp_path)
    amd(tmp_path, [MI300X])
    words = command(tmp_path, every_s=600.0)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as following:
        assert read(following.stdout.readline()).devices == look(tmp_path)
        following.stdin.close()
        assert following.wait(30) == 0


def test_without_a_driver_nobody_is_asked(tmp_path):
    """No process is started: its command would have to be found."""
    assert take_look(tmp_path).devices == ()
    assert not (tmp_path / NODES).exists()
