"""The Dockerfiles, read: no image can be built here, so what can be seen in the text is held against the code."""

import fnmatch
import json
import re
import tomllib
from pathlib import Path

import pytest
from halogen_operator import names
from halogen_operator.render import pod
from halogen_operator.settings import parse
from support.operator_manifests import ROOT

DAEMONS = sorted((ROOT / "deploy/docker").glob("*.Dockerfile"))
OPERATOR = ROOT / "operator/Dockerfile"
ALL = [*DAEMONS, OPERATOR]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
Stage = list[tuple[str, str]]
"""Instructions of one stage: word, rest of the line."""


def stages(path: Path) -> list[Stage]:
    text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
    found: list[Stage] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            if word == "FROM":
                found.append([])
            found[-1].append((word, " ".join(rest.split())))
    return found


def values(stage: Stage, word: str) -> list[str]:
    return [rest for each, rest in stage if each == word]


def environment(stage: Stage) -> dict[str, str]:
    return dict(pair.split("=", 1) for line in values(stage, "ENV") for pair in line.split())


@pytest.fixture(params=ALL, ids=lambda path: path.name)
def dockerfile(request: pytest.FixtureRequest) -> list[Stage]:
    return stages(request.param)


def test_there_is_one_for_each_kind_of_device() -> None:
    assert [path.name for path in DAEMONS] == ["cpu.Dockerfile", "cuda.Dockerfile", "rocm.Dockerfile"]


def test_every_instruction_is_one_that_is_meant(dockerfile: list[Stage]) -> None:
    known = {"FROM", "ARG", "ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {word for stage in dockerfile for word, _ in stage} <= known


def test_bases_are_named_with_a_version(dockerfile: list[Stage]) -> None:
    bases = {base.split(" AS ")[0] for stage in dockerfile for base in values(stage, "FROM")}
    assert bases == {"python:3.11-slim-bookworm"}  # both stages: a virtual environment is tied to its Python
    assert PROJECT["requires-python"] == ">=3.11"


def test_it_runs_as_the_user_that_pods_run_as(dockerfile: list[Stage]) -> None:
    assert values(dockerfile[-1], "USER") == [f"{pod._USER}:{pod._USER}"]
    last = [word for word, _ in dockerfile[-1]]
    assert last.index("USER") > max(index for index, word in enumerate(last) if word in {"COPY", "FROM"})


def test_what_is_copied_is_there_and_not_ignored(dockerfile: list[Stage]) -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert values(dockerfile[0], "COPY") == [". ."]
    for needed in ("halogend", "kernels", "operator", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        assert (ROOT / needed).exists()
        assert not any(fnmatch.fnmatch(needed, pattern) for pattern in ignored)
    venv = re.findall(r"python -m venv (\S+)", " ".join(values(dockerfile[0], "RUN")))
    assert values(dockerfile[1], "COPY") == [f"--from=build {venv[0]} {venv[0]}"]


def test_packages_come_in_the_versions_of_the_tests(dockerfile: list[Stage]) -> None:
    (install,) = [line for line in values(dockerfile[0], "RUN") if "pip install" in line]
    extras = re.search(r"pip install -c constraints.txt '\.\[(.*?)\]'", install)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])


def test_systems_packages_leave_no_lists_behind(dockerfile: list[Stage]) -> None:
    for line in (line for stage in dockerfile for line in values(stage, "RUN") if "apt-get install" in line):
        assert "--no-install-recommends" in line
        assert "rm -rf /var/lib/apt/lists/*" in line


def test_nothing_in_it_is_secret_or_gives_devices_away(dockerfile: list[Stage]) -> None:
    stated = {key for stage in dockerfile for key in environment(stage)} | {
        line.split("=")[0] for stage in dockerfile for line in values(stage, "ARG")
    }
    assert not [key for key in stated if re.search("TOKEN|SECRET|PASSWORD|KEY|VISIBLE_DEVICES", key)]


@pytest.mark.parametrize("path", DAEMONS, ids=lambda path: path.name)
def test_the_daemons_image_fits_the_pod(path: Path) -> None:
    """Its entry point is `halogend` behind an init, its folders and ports are those of the pod."""
    last = stages(path)[-1]
    stated = environment(last)
    assert stated["STATE_DIRECTORY"] == names.STATE_FOLDER
    assert stated["CACHE_DIRECTORY"] == names.CACHE_FOLDER
    assert stated["RUNTIME_DIRECTORY"] == names.RUNTIME_FOLDER
    assert values(last, "EXPOSE") == [f"{names.HTTP_PORT} {names.ADMIN_PORT}"]
    init, dashes, program = json.loads(values(last, "ENTRYPOINT")[0])
    assert (Path(init).name, dashes) == ("tini", "--")
    assert "tini" in " ".join(values(last, "RUN"))
    assert Path(program).name in PROJECT["scripts"]
    assert str(Path(program).parent) in stated["PATH"].split(":")
    for folder in (names.STATE_FOLDER, names.RUNTIME_FOLDER, names.CACHE_FOLDER):
        assert folder in " ".join(values(last, "RUN"))


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_accelerators_images_have_what_triton_compiles_with(kind: str) -> None:
    last = stages(ROOT / f"deploy/docker/{kind}.Dockerfile")[-1]
    assert "gcc" in " ".join(values(last, "RUN")).split()


def test_the_operators_image_starts_the_operator() -> None:
    last = stages(OPERATOR)[-1]
    entry, arguments = (json.loads(values(last, word)[0]) for word in ("ENTRYPOINT", "CMD"))
    assert entry[1:] == ["-m", "halogen_operator"]
    assert values(last, "EXPOSE") == [str(parse(arguments, {}, "1").port)]
