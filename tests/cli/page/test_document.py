"""The page as a document: it needs nothing else, and data cannot become code."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from tests.cli.page.made import EVENTFUL, MARKUP, SCRIPT
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.cli.trace.page.document import document


class Elements(HTMLParser):
    """The elements of a document, in order, with their attributes and texts."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), []))
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.found[-1][2].append(data)

    def named(self, tag):
        return [
            (attributes, "".join(texts)) for name, attributes, texts in self.found if name == tag
        ]


@pytest.fixture(scope="module")
def exported(store, tmp_path_factory):
    file = tmp_path_factory.mktemp("export") / "trace.html"
    command = ["trace", "open", EVENTFUL, "--export", str(file), "--store", str(store)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{file}: trace {EVENTFUL}{'0' * 30}, 0.1 MB\n"
    return file.read_text("utf-8")


@pytest.fixture(params=["served", "exported"])
def text(request):
    return document() if request.param == "served" else request.getfixturevalue("exported")


def test_it_asks_nothing_of_the_network(text):
    for tag, attributes, _ in Elements(text).found:
        links = [attributes.get(name) for name in ("src", "href") if name in attributes]
        assert all(link.startswith("data:") for link in links), tag
    policy = next(a["content"] for a, _ in Elements(text).named("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_policy_allows_the_code_that_is_there_and_no_other(text):
    elements = Elements(text)
    policy = next(a["content"] for a, _ in elements.named("meta") if "http-equiv" in a)
    inline = [body for a, body in elements.named("script") if a.get("type") != "application/json"]
    inline += [body for _, body in elements.named("style")]
    hashes = {base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in inline}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes


def test_every_module_that_is_imported_is_there(text):
    (modules,) = [body for a, body in Elements(text).named("script") if a["type"] == "importmap"]
    imports = json.loads(modules)["imports"]
    for name, url in imports.items():
        code = base64.b64decode(url.partition(",")[2]).decode()
        assert code.endswith(f"//# sourceURL={name}.js\n")
        assert set(re.findall(r'from "(.*?)"', code)) <= imports.keys(), name
        # Texts of traces must not become markup.
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code)


def test_an_export_holds_its_trace_and_no_text_of_it_ends_the_element(exported):
    scripts = Elements(exported).named("script")
    assert [attributes.get("type") for attributes, _ in scripts] == [
        "importmap",
        "application/json",
        "module",
    ]
    assert SCRIPT not in exported
    assert MARKUP not in exported
    told = json.loads(scripts[1][1])
    assert told["summary"]["trace_id"].startswith(EVENTFUL)
    texts = {token["text"] for token in told["tokens"]["committed"] + told["tokens"]["wasted"]}
    assert {SCRIPT, MARKUP} < texts


def test_an_export_says_what_would_have_shortened_its_trace(exported):
    ((_, data),) = [
        each for each in Elements(exported).named("script") if each[0].get("id") == "data"
    ]
    assert json.loads(data)["what_if"] == {"unknown": "not known: spans are missing"}


def test_a_served_page_holds_no_trace():
    assert 'id="data"' not in document()
