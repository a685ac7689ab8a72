"""Where compiled kernels will be looked for, and for what: by the document and what the machine has."""

from __future__ import annotations

from support.config_documents import HEAD, read
from support.fake_devices import accelerator

from halogend.config.facts import DeviceFacts
from halogend.config.schema import Document
from halogend.control.kernel_folders import folders_of_all, kernel_folders
from halogend.control.machine import Machine

CPU = DeviceFacts(id="cpu:0", memory_bytes=1 << 30, aliases=("cpu",))
H100 = accelerator()
A100 = accelerator(id="cuda:1", aliases=("a100:0",), product="a100", arch="sm_80")
BROKEN = accelerator(id="cuda:2", aliases=("h200:0",), product="h200", arch="sm_90", unusable="it is divided")
MI300X = accelerator(id="rocm:0", aliases=("mi300x:0",), kind="rocm", product="mi300x", arch="gfx942")


def machine(*devices: DeviceFacts) -> Machine:
    return Machine(2, True, devices, kernel_cache="/kernels")


def document(*models: str, devices: str = "") -> Document:
    found = read(f"{HEAD}{devices}\nmodels:\n" + "".join(f"  - {{{each}}}\n" for each in models)).document
    assert found is not None
    return found


def test_each_model_s_folder_has_the_kinds_of_its_devices() -> None:
    wanted = document(
        "name: a, model: /a.gguf, device: h100, kernels: {cache_dir: /own}",
        "name: b, model: /b.gguf, device: [h100, a100], exec_mode: data_parallel",
        "name: c, model: /c.gguf, device: mi300x",
        "name: d, model: /d.gguf, device: cpu",
    )
    there = machine(H100, A100, MI300X, CPU)
    assert kernel_folders(wanted, there) == {"/own": ("sm_90",), "/kernels": ("sm_90", "sm_80", "gfx942")}


def test_a_device_that_a_newcomer_may_be_put_on_counts() -> None:
    there = machine(H100, A100, MI300X, CPU)
    assert kernel_folders(document("name: a, model: /a.gguf"), there) == {"/kernels": ("sm_90", "sm_80")}
    own = document("name: a, model: /a.gguf, device: h100")
    assert kernel_folders(own, there) == {"/kernels": ("sm_90",)}
    spare = document("name: a, model: /a.gguf, device: h100", devices="devices: [{id: a100, spare: true}]")
    assert kernel_folders(spare, there) == {"/kernels": ("sm_90", "sm_80")}


def test_processors_and_what_cannot_be_used_need_none() -> None:
    assert kernel_folders(document("name: a, model: /a.gguf"), machine(CPU, BROKEN)) == {}
    assert kernel_folders(document("name: a, model: /a.gguf, device: h200"), machine(BROKEN, CPU)) == {}


def test_without_a_document_every_kind_counts() -> None:
    assert folders_of_all(machine(H100, A100, H100, MI300X, BROKEN, CPU)) == {"/kernels": ("sm_90", "sm_80", "gfx942")}
    assert folders_of_all(machine(CPU, BROKEN)) == {}
