"""docs/kubernetes.md: its tables are the code's, what it names is there."""

import re

import pytest
import yaml
from halogen_operator import reference
from halogen_operator.reasons import Kind, Why
from support.operator_manifests import ROOT

PAGE = ROOT / "docs/kubernetes.md"
CRD = ROOT / "crds/halogenmodels.halogen.dev.yaml"


def test_its_tables_are_the_codes() -> None:
    page = PAGE.read_text()
    assert reference.filled(page) == page, "run make docs"


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for the table"):
        reference.filled("# Kubernetes\n")


def test_every_condition_and_reason_is_told() -> None:
    table = reference.tables()["reasons"]
    assert [why for why in Why if f"| `{why}` |" not in table] == []
    assert [kind for kind in Kind if f"{kind} True" not in table] == []


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE.read_text())
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_files_that_it_names_are_there() -> None:
    named = re.findall(r"`((?:operator|deploy|crds|examples)/[\w./-]+)`", PAGE.read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_table_of_kubectl_get_has_the_definitions_columns() -> None:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    columns = [each["name"].upper() for each in version["additionalPrinterColumns"] if not each.get("priority")]
    (header,) = re.findall(r"^    NAME +(.*)$", PAGE.read_text(), re.MULTILINE)
    assert header.split() == columns
