"""NVIDIA's devices through a library that answers like the driver's."""

import pytest
from support.fake_devices import GIB, host, nvidia, nvml

from halogend.control import devices_look
from halogend.control.devices import HOST, SWITCH, facts_of, named, nominal_bytes_per_s
from halogend.control.devices_nvidia import Nvml, NvmlError
from halogend.control.machine import probe


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def told(library):
    """A factory: what the library says of itself until the test is over."""
    written = []

    def tell(**values):
        for name, value in values.items():
            (library.parent / name).write_text(str(value))
            written.append(library.parent / name)

    yield tell
    for path in written:
        path.unlink(missing_ok=True)


def test_what_the_driver_tells(library):
    first, second, _ = Nvml(str(library)).look()
    assert (first.name, first.arch, first.memory_bytes, first.used_bytes) == (
        "NVIDIA GeForce RTX 4090",
        "sm_89",
        24 * GIB,
        1 * GIB,
    )
    assert (first.address, first.bus, first.power_w) == ("GPU-0000-0", "0000:01:00.0", None)
    assert (second.temperature_c, second.clock_mhz, second.memory_clock_mhz, second.power_w) == (50, 1980, 2619, 310.5)
    assert second.pci_id == 0x2330


def test_the_temperature_at_which_it_slows_down_or_how_far_off_that_is(library, told):
    for temperature in (50, 70):
        told(temperature=temperature)
        assert [seen.slowdown_c for seen in Nvml(str(library)).look()] == [92.0, 92.0, 89.0]


def test_links_and_what_they_carry(library):
    first, second, third = Nvml(str(library)).look()
    assert [(link.kind, link.to, link.detail) for link in first.links] == [("pcie", HOST, "gen 4 x16")]
    assert [(link.kind, link.to, link.detail) for link in second.links] == [
        ("pcie", HOST, "gen 5 x16"),
        ("nvlink", third.bus, "3 links"),
        ("nvlink", SWITCH, "1 links"),
    ]
    assert nominal_bytes_per_s(second, third) == ("nvlink", 75e9), "straight, which is more than over the switch"
    assert nominal_bytes_per_s(first, second) == ("pcie", 16 * 1.969e9), "the slower of the two"
    assert nominal_bytes_per_s(second) == ("pcie", 16 * 3.938e9)


def test_ids_products_and_numbers_of_each(library, tmp_path):
    """The second of a product is called so, whatever stands before it."""
    host(tmp_path)
    nvidia(tmp_path)
    look = devices_look.take_look(tmp_path, str(library))
    machine = probe(tmp_path, look=lambda _: look, builds=lambda: frozenset({"cuda"}))
    assert [(each.id, each.aliases) for each in machine.devices] == [
        ("cuda:0", ("rtx_4090:0",)),
        ("cuda:1", ("h100:0",)),
        ("cuda:2", ("h100:1",)),
        ("cpu:0", ("cpu",)),
    ]
    assert list(named(look)) == ["cuda:0", "cuda:1", "cuda:2"]
    assert machine.device("h100:1").reserve_bytes == 4 * GIB
    assert machine.device("h100:1").foreign_bytes == 1 * GIB
    assert machine.environ_of("h100:1") == {"CUDA_VISIBLE_DEVICES": "GPU-0000-2", "ROCR_VISIBLE_DEVICES": ""}
    assert machine.environ_of("cpu:0") == {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
    assert (machine.runs_on("h100:1"), machine.runs_on("cpu:0")) == ("cuda:0", "cpu:0")
    assert machine.host.id == "cpu:0"
    assert (machine.compute_of("cuda:0"), machine.compute_of("cpu:0")) == ("bf16", "bf16")


def test_a_torch_for_the_cpu_uses_none_of_them(library, tmp_path):
    host(tmp_path)
    look = devices_look.Look(devices=Nvml(str(library)).look())
    machine = probe(tmp_path, look=lambda _: look, builds=frozenset)
    assert [each.id for each in machine.devices] == ["cpu:0", "cuda:0", "cuda:1", "cuda:2"]
    assert machine.devices[1].unusable == "the installed torch is not built for CUDA"


def test_one_that_is_divided_is_no_whole_device(library, told, tmp_path):
    told(mig=1)
    look = devices_look.Look(devices=Nvml(str(library)).look())
    host(tmp_path)
    cpu = probe(tmp_path, look=lambda _: devices_look.Look()).host
    reasons = [each.unusable for each in facts_of(look, cpu, {"cuda"})]
    assert reasons == ["", *["it is divided into instances (MIG)"] * 2]


def test_without_memory_of_its_own_to_tell_of(library, told, tmp_path):
    told(memory=3)
    assert {seen.trouble for seen in Nvml(str(library)).look()} == {"its driver tells no memory of its own"}


@pytest.mark.parametrize(
    ("result", "why"), [(9, "the driver is not loaded"), (18, "driver and library are of two versions"), (77, "77")]
)
def test_a_library_that_does_not_answer_says_why(library, told, tmp_path, result, why):
    told(init=result)
    with pytest.raises(NvmlError, match=why):
        Nvml(str(library))
    nvidia(tmp_path)
    host(tmp_path)
    look = devices_look.take_look(tmp_path, str(library))
    assert look.devices == ()
    assert why in look.troubles[0]


def test_one_that_is_lost_keeps_its_number_and_the_others_go_on(library, told, tmp_path):
    told(lost=1)
    host(tmp_path)
    look = devices_look.Look(devices=Nvml(str(library)).look())
    machine = probe(tmp_path, look=lambda _: look, builds=lambda: frozenset({"cuda"}))
    assert [each.id for each in machine.devices] == ["cuda:0", "cuda:2", "cpu:0", "cuda:1"]
    assert "the device has fallen off its bus" in machine.device("cuda:1").unusable
    assert machine.device("h100:0").id == "cuda:2", "the first of those that say what they are"


def test_without_the_library(tmp_path):
    nvidia(tmp_path)
    host(tmp_path)
    look = devices_look.take_look(tmp_path, str(tmp_path / "none.so"))
    assert "cannot be loaded" in look.troubles[0]


def test_a_look_that_dies_is_a_trouble_and_nothing_else(tmp_path):
    nvidia(tmp_path)
    (tmp_path / "broken.so").write_bytes(b"\x7fELF and then nothing")
    assert devices_look.take_look(tmp_path, str(tmp_path / "broken.so")).troubles
    assert devices_look.read(b"Segmentation fault\n") is None
