"""What a processor multiplies by itself, as /proc/cpuinfo of several kinds says it."""

import pytest

from halogend.obs.processor import has_bf16, numbers


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu avx2 f16c fma", "fp32"),
        ("flags\t\t: fpu avx2 avx512f avx512bw avx512_vnni", "fp32"),
        ("flags\t\t: fpu avx512f avx512_bf16", "bf16"),
        ("flags\t\t: fpu amx_bf16 amx_tile", "bf16"),
        ("Features\t: fp asimd bf16", "bf16"),
        ("model name\t: avx512_bf16", "fp32"),
    ],
)
def test_it_is_read_from_the_flags(tmp_path, line, expected):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\n{line}\n")
    assert (numbers(tmp_path), has_bf16(tmp_path)) == (expected, expected == "bf16")


def test_a_processor_that_says_nothing_multiplies_float32(tmp_path):
    assert numbers(tmp_path) == "fp32"
