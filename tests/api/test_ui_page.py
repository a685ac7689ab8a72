"""The page: nothing from elsewhere, nothing inline, no value as markup, and every part it names is there."""

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from halogend.api.admin import admin_app
from halogend.control.receipts import Receipts

FOLDER = files("halogend.api.ui")
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser")


class Page(HTMLParser):
    """Every element with its attributes, and the text inside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.inline = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside in ("script", "style") and data.strip():
            self.inline.append(data)


@pytest.fixture
async def client():
    class Admin:
        def receipts(self):
            return Receipts().all()

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(admin_app(Admin())), base_url="http://admin/admin/v1/"
    ) as made:
        yield made


async def test_every_part_is_served_with_its_type_and_kept_from_other_sites(client):
    for path, kind in (("ui", "text/html"), ("ui/page.js", "text/javascript"), ("ui/page.css", "text/css")):
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] == kind
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_nothing_in_the_page_is_inline_or_from_elsewhere(client):
    page = Page((await client.get("ui")).text)
    assert page.inline == []
    names = [name for _, attributes in page.elements for name in attributes]
    assert [name for name in names if name.startswith("on") or name == "style"] == []
    links = [a[key] for _, a in page.elements for key in ("src", "href") if key in a]
    assert sorted(links) == ["data:,", "ui/page.css", "ui/page.js"]
    for link in links[1:]:
        assert (await client.get(link)).status_code == 200  # as a browser finds it from the page's own path


def test_no_value_goes_in_as_markup_and_nothing_is_asked_for_elsewhere():
    script, style = (FOLDER.joinpath(name).read_text() for name in ("page.js", "page.css"))
    assert MARKUP.findall(script) == []
    assert "//" not in re.sub(r"//.*", "", script)
    assert "http" not in script
    assert "url(" not in style
    assert "@import" not in style


def test_every_element_that_the_script_looks_for_is_in_the_page():
    script, page = FOLDER.joinpath("page.js").read_text(), Page(FOLDER.joinpath("page.html").read_text())
    there = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    wanted = set(re.findall(r'\bat\("([\w-]+)"\)', script))
    assert wanted
    assert wanted - there == set()


def test_the_page_listens_to_every_kind_of_event():
    """Those of the table in docs/api.md; `hello` is heard by itself."""
    script = FOLDER.joinpath("page.js").read_text()
    heard = set(re.findall(r'"(\w+)"', re.search(r"KINDS = \[(.*?)\]", script, re.DOTALL)[1]))
    table = (Path(__file__).parents[2] / "docs/api.md").read_text().partition("| event | data")[2]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    told = {name for line in rows for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert told <= heard
    assert "receipt" in told
