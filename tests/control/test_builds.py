"""For whose accelerators torch is built, as its own file says."""

import pytest

from halogend.control.builds import stated_kinds, torch_kinds

TEXT = "from typing import Optional\n__version__ = '2.13.0'\ncuda: Optional[str] = {}\nhip: Optional[str] = {}\n"


@pytest.mark.parametrize(
    ("cuda", "hip", "kinds"), [("None", "None", set()), ("'12.8'", "None", {"cuda"}), ("None", '"6.4.1"', {"rocm"})]
)
def test_what_a_build_says(tmp_path, cuda, hip, kinds):
    (tmp_path / "version.py").write_text(TEXT.format(cuda, hip))
    assert stated_kinds(tmp_path / "version.py") == kinds


def test_a_build_that_says_nothing_is_for_none(tmp_path):
    assert stated_kinds(tmp_path / "version.py") == set()


def test_the_installed_one_is_looked_at_without_importing_it():
    assert torch_kinds() <= {"cuda", "rocm"}
