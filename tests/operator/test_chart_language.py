"""The subset of Go's templates that renders the chart here: what it knows, and that it refuses the rest."""

from typing import Any

import pytest
from support.go_template import TemplateError, render

ROOT: dict[str, Any] = {"Values": {"name": "a", "empty": "", "list": ["x", "y"], "map": {"k": 1}, "on": True}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ .Values.name }}", "a"),
        ('{{ .Values.empty | default "b" }}', "b"),
        ("{{ .Values.name | quote }}", '"a"'),
        ("{{ .Values.on }}", "true"),
        ("a\n  {{- /* told to nobody */}}b", "ab"),
        ("{{ if .Values.empty }}x{{ else }}y{{ end }}", "y"),
        ("{{ with .Values.map }}{{ .k }}{{ $.Values.name }}{{ end }}", "1a"),
        ("{{ range .Values.list }}{{ . }},{{ end }}", "x,y,"),
        ("a:\n  {{- toYaml .Values.map | nindent 2 }}\nb", "a:\n  k: 1\nb"),
        ("{{ if .Values.on }}\nx\n{{- end }}\ny", "\nx\ny"),
    ],
)
def test_what_the_chart_uses(template: str, text: str) -> None:
    assert render(template, ROOT) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ .Values.nothing }}",
        "{{ include `x` . }}",
        "{{ .Values.name | upper }}",
        "{{ if .Values.on }}",
        "{{ if eq .Values.name `a` }}x{{ end }}",
        "{{ if .Values.on }}x{{ else if .Values.name }}y{{ end }}",
        "{{ .Values.map }}",
        "{{ $x := 1 }}",
    ],
)
def test_what_it_does_not_know_is_an_error(template: str) -> None:
    with pytest.raises(TemplateError):
        render(template, ROOT)
