"""The chart takes what pages tell people to install it with, and a value that a page recommends."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from charting import render

from guides.blocks import fences

DOCS = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
SETTING = re.compile(r"`([a-z]\w+(?:\.\w+)+)=(\w+)`")
NEWEST = "1.37.1"


class Install(NamedTuple):
    """A line that installs or upgrades, or a setting that stands alone."""

    page: str
    line: str
    values: dict[str, Any]


def installs() -> Iterator[Install]:
    """Every line of every page that gives the stack's chart to Helm."""
    for page in sorted(DOCS.rglob("*.md")):
        blocks = list(fences(page, page.read_text()))
        files = {block.title: "\n".join(block.lines) for block in blocks if block.title}
        for line in (line for block in blocks if block.language == "sh" for line in block.joined):
            if re.search(r"\bhelm (install|upgrade)\b.* helm/gpushare\b", line):
                yield Install(page.name, line, _values(line, files))


def settings() -> Iterator[Install]:
    """Every value that a page names together with what it is set to."""
    for page in sorted(DOCS.rglob("*.md")):
        for path, word in SETTING.findall(page.read_text()):
            yield Install(page.name, f"{path}={word}", _nested(path, word))


def _values(line: str, files: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    words = shlex.split(line.removeprefix("$ "), comments=True)
    for flag, given in pairwise(words):
        if flag in {"--values", "-f"}:
            text = files[given] if given in files else (DOCS.parent / given).read_text()
            values = _merged(values, yaml.safe_load(text))
        if flag == "--set":
            path, _, word = given.partition("=")
            values = _merged(values, _nested(path, word))
    return values


def _nested(path: str, word: str) -> dict[str, Any]:
    value: Any = yaml.safe_load(word)
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    shared = one.keys() & other.keys()
    deep = (key for key in shared if isinstance(one[key], dict) and other[key] is not None)
    return {**both, **{key: _merged(one[key], other[key]) for key in deep}}


@pytest.mark.parametrize("install", list(installs()), ids=lambda install: install.page)
def test_the_chart_takes_the_values_of_every_line_that_installs_it(install: Install) -> None:
    """With files of the page or of the chart; a first install names a registry too."""
    known = {} if "--reuse-values" in install.line else {"image": {}}
    assert render(NEWEST, _merged(known, install.values)).of("DaemonSet")


@pytest.mark.parametrize("install", list(settings()), ids=lambda install: install.line)
def test_the_chart_takes_every_setting_that_a_page_names(install: Install) -> None:
    """Also those that stand in a sentence."""
    assert render(NEWEST, install.values).of("DaemonSet")
