"""The file: it fetches nothing, and no text in it can be anything but text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from tests.load.reports import mixed_run, run_report

from specmesh.load.html.contents import page
from specmesh.load.html.document import document, embedded

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 </SCRIPT >"


class Read(HTMLParser):
    """What a browser finds: elements with their attributes, and what scripts and styles hold."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.held = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in {"script", "style"}:
            self.held.append((tag, dict(attributes).get("type"), ""))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] in {"script", "style"}:
            tag, kind, text = self.held[-1]
            self.held[-1] = (tag, kind, text + data)

    def handle_endtag(self, tag):
        self.elements.append((f"/{tag}", {}))


@pytest.fixture(scope="module")
def text():
    return document(page([("", run_report(mixed_run(HOSTILE), command=HOSTILE))]))


def test_no_text_of_a_report_can_end_the_data_it_stands_in(text):
    scripts = [each for each in Read(text).held if each[0] == "script"]
    assert [kind for _, kind, _ in scripts] == ["application/json", None, None]
    data = json.loads(scripts[0][2])
    assert data["runs"][0]["errors"] == [[HOSTILE, 5]]
    assert data["facts"][1]["values"] == [HOSTILE]
    assert "alert(1)" not in scripts[1][2] + scripts[2][2]


@pytest.mark.parametrize("hostile", ["</script>", "<!--<script>", "]]>", "\u2028\u2029", '"\\'])
def test_embedded_data_is_the_same_json_without_markup(hostile):
    written = embedded({hostile: hostile})
    assert json.loads(written) == {hostile: hostile}
    assert not set("<>&\u2028\u2029") & set(written)


def test_values_that_are_no_json_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded({"x": float("nan")})


def test_nothing_is_fetched(text):
    elements = Read(text).elements
    assert not {tag for tag, _ in elements} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [given for _, given in elements if {"src", "href", "style", "onclick"} & set(given)]
    assert not re.search(
        r"@import|url\(", "".join(held for tag, _, held in Read(text).held if tag == "style")
    )


def test_the_policy_allows_these_scripts_and_styles_alone(text):
    read = Read(text)
    policy = next(given["content"] for tag, given in read.elements if given.get("http-equiv"))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        held = [each for name, kind, each in read.held if name == tag and kind is None]
        digests = [hashlib.sha256(each.encode()).digest() for each in held]
        allowed = [f"'sha256-{base64.b64encode(each).decode()}'" for each in digests]
        assert rules[rule].split() == allowed


def test_scripts_put_text_in_as_text_alone():
    for file in files("specmesh.load.html").joinpath("assets").iterdir():
        if file.name.endswith(".js") and not file.name.startswith("uPlot"):
            found = re.findall(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", file.read_text()
            )
            assert not found, file.name


def test_the_library_comes_with_its_license(text):
    assert "uPlot (v1.6.32)" in text
    assert "Permission is hereby granted, free of charge" in text
