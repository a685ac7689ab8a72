"""What a compiled kernel takes is read from what the tools say."""

import re
from pathlib import Path

import pytest
from halogen_kernels.triton import targets
from halogen_kernels.triton.index import Entry
from halogen_kernels.triton.rehearsal import operators
from halogen_kernels.triton.resource_table import BEGIN, END, markdown, placed
from halogen_kernels.triton.resources import Resources, of_amdgcn, of_cuobjdump

README = Path(__file__).parents[2] / "kernels/README.md"
CUOBJDUMP = """
Resource usage:
 Common:
  GLOBAL:0
 Function toy:
  REG:{registers} STACK:{stack} SHARED:0 LOCAL:{local} CONSTANT[0]:572 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
AMDGCN = """
amdhsa.kernels:
  - .agpr_count:     0
    .private_segment_fixed_size: {memory}
    .sgpr_count:     22
    .sgpr_spill_count: {sgpr}
    .vgpr_count:     {registers}
    .vgpr_spill_count: {vgpr}
"""


@pytest.mark.parametrize(("stack", "local", "spilled"), [(0, 0, 0), (16, 0, 16), (8, 8, 16)])
def test_nvidia(stack, local, spilled):
    assert of_cuobjdump(CUOBJDUMP.format(registers=168, stack=stack, local=local)) == (168, spilled)


@pytest.mark.parametrize(
    ("sgpr", "vgpr", "memory", "spilled"),
    [(0, 0, 0, 0), (2, 0, 0, 0), (2, 0, 8, 2), (0, 7, 28, 7), (2, 7, 36, 9), (0, 0, 16, 4)],
)
def test_amd(sgpr, vgpr, memory, spilled):
    """Scalar registers in lanes of vector registers are in no memory; memory that no spill explains counts too."""
    assert of_amdgcn(AMDGCN.format(registers=96, sgpr=sgpr, vgpr=vgpr, memory=memory)) == (96, spilled)


def test_what_says_nothing_is_an_error():
    with pytest.raises(ValueError, match="no resource usage: 'nothing'"):
        of_cuobjdump("nothing")
    with pytest.raises(ValueError, match=r"no \.vgpr_count"):
        of_amdgcn(".sgpr_count: 1")


def test_a_spill_and_too_much_shared_memory_are_faults():
    target = targets.named("gfx1151")
    assert Resources(128, 64 << 10, 0).faults(target) == []
    assert Resources(128, (64 << 10) + 1, 3).faults(target) == [
        "spills 3 registers",
        "wants 65537 bytes of shared memory, gfx1151 has 65536",
    ]


def test_the_table_in_the_readme_has_every_operator_on_every_target_and_no_spill():
    text = README.read_text()
    table = text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert table, "made by: python -m halogen_kernels.triton.resource_table --readme kernels/README.md"
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    assert head == ["operator", *(target.name for target in targets.TARGETS)]
    assert [row[0] for row in rows] == sorted(operators())
    for row in rows:
        for cell in row[1:]:
            assert re.fullmatch(r"\d+, \d+ KiB", cell), f"{row[0]}: {cell}"


def test_a_cell_is_the_most_that_any_variant_takes():
    entries = [
        Entry("rotate", "a", "k1", "s", Resources(64, 2048, 0)),
        Entry("rotate", "b", "k2", "s", Resources(32, 4096, 8)),
        Entry("activation", "c", "k3", "s", Resources(16, 0, 0)),
    ]
    target, other = targets.TARGETS[:2]
    assert markdown({target: entries, other: entries[2:]}).splitlines() == [
        "| operator | sm_80 | sm_89 |",
        "|---|---|---|",
        "| activation | 16, 0 KiB | 16, 0 KiB |",
        "| rotate | 64, 4 KiB, spills 8 | - |",
    ]
    assert placed(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
    with pytest.raises(ValueError, match="no marks"):
        placed("a", "new")
