"""The command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from halogen_operator.settings import parse


def test_namespaces_or_all_of_them_must_be_said() -> None:
    with pytest.raises(SystemExit):
        parse([], {}, "1")
    with pytest.raises(SystemExit):
        parse(["--all-namespaces", "--namespace", "a"], {}, "1")
    assert parse(["--all-namespaces"], {}, "1").namespaces == ()
    assert parse(["--namespace", "a", "b", "a"], {}, "1").namespaces == ("a", "b")


def test_the_pod_says_where_it_runs() -> None:
    settings = parse(["--all-namespaces"], {"POD_NAME": "op-1", "POD_NAMESPACE": "halo", "POD_IP": "1.2.3.4"}, "9")
    assert (settings.identity, settings.namespace, settings.version) == ("op-1", "halo", "9")
    assert parse(["--all-namespaces"], {}, "9").namespace == "halogen-system"


def test_every_option_is_a_setting() -> None:
    line = "--namespace a --kubeconfig k --context c --server http://s --peering p --priority 3 --image i --workers 2"
    settings = parse([*line.split(), "--host", "::1", "--port", "0", "--log-level", "debug", "--bind", "::"], {}, "1")
    assert settings.kubeconfig == Path("k")
    assert (settings.context, settings.server, settings.peering, settings.priority) == ("c", "http://s", "p", 3)
    assert (settings.image, settings.workers, settings.host, settings.port) == ("i", 2, "::1", 0)
    assert (settings.log_level, settings.bind) == ("debug", "::")


def test_a_name_is_no_address_to_listen_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--all-namespaces", "--bind", "pod"], {}, "1")
    assert "--bind" in capsys.readouterr().err


def test_no_workers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--all-namespaces", "--workers", "0"], {}, "1")
    assert "less than 1" in capsys.readouterr().err
