"""``-o jsonpath=`` and ``-o custom-columns=`` over the documents of the commands."""

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpuinspect.terminal.columns import table
from gpuinspect.terminal.jsonpath import JsonPathError, render

DOCUMENT = {
    "kind": "List",
    "items": [
        {"name": "a", "labels": {"x.y/z": "1"}, "free": [1, 2, 3], "ok": True},
        {"name": "b", "labels": {}, "free": [], "ok": False},
    ],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{.kind}", "List"),
        ("{$.kind}", "List"),
        ("kind: {.kind}!", "kind: List!"),
        ("{.items[*].name}", "a b"),
        ("{.items[0].name}", "a"),
        ("{.items[-1].name}", "b"),
        ("{.items[5].name}", ""),
        ("{.items[0].free[1:]}", "2 3"),
        ("{.items[0].free}", "[1,2,3]"),
        ("{.items[*].ok}", "true false"),
        ("{.items[*].labels['x.y/z']}", "1"),
        ("{.items[0].labels.*}", "1"),
        ("{.missing.field}", ""),
        ('{range .items[*]}{.name}{"\\t"}{.ok}{"\\n"}{end}', "a\ttrue\nb\tfalse\n"),
        ("{range .items[*]}{range .free[*]}<{@}>{end}{.name}{end}", "<1><2><3>ab"),
        ("{range .items[*]}{'}'}{end}", "}}"),
        ("", ""),
    ],
)
def test_fields_are_selected_as_kubectl_does(template: str, expected: str) -> None:
    """Missing fields select nothing; texts are bare, other values are JSON."""
    assert render(template, DOCUMENT) == expected


@pytest.mark.parametrize(
    "template",
    ["{.a", "}", "{range .items[*]}", "{end}", "{.items[?(@.x)]}", "{..name}", "{name}"],
)
def test_what_is_not_supported_is_an_error(template: str) -> None:
    """Not an empty output."""
    with pytest.raises(JsonPathError):
        render(template, DOCUMENT)


def test_columns() -> None:
    """A line for each item; a missing field is ``<none>``."""
    assert table("NAME:.name,FIRST:.free[0]", DOCUMENT) == "NAME  FIRST\na     1\nb     <none>\n"
    assert table("KIND:.kind", {"kind": "PodExplanation"}) == "KIND\nPodExplanation\n"


@pytest.mark.parametrize("columns", ["NAME", "NAME:", ":.name", "NAME:.name,", "NAME:.a[?()]"])
def test_columns_that_cannot_be_read(columns: str) -> None:
    """Each is a name, a colon and a path."""
    with pytest.raises(JsonPathError):
        table(columns, DOCUMENT)


def test_commands_take_both(run: Run) -> None:
    """Over the document of ``-o json``."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(15)]).pod("web", 6, node="n1", index=0)
    template = '-ojsonpath={range .items[*]}{.name} {.allocated}{"\\n"}{end}'
    assert run("inspect", template, on=cluster).out == "n1 6\n"
    columns = "custom-columns=NODE:.name,POD:.pods[*].name"
    assert run("inspect", "-o", columns, on=cluster).out == "NODE  POD\nn1    web\n"


def test_control_characters_in_columns_are_not_printed(run: Run) -> None:
    """Fields of the cluster reach a terminal as text only."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(15, "T4\x1b[2J")])
    out = run("inspect", "-o", "custom-columns=M:.gpus[0].model", on=cluster).out
    assert "\x1b" not in out


@pytest.mark.parametrize("form", ["xml", "jsonpath", "jsonpath={.a", "custom-columns=A"])
def test_another_format_is_refused(run: Run, cluster: FakeCluster, form: str) -> None:
    """With the formats that there are, or the place of the mistake."""
    outcome = run("inspect", "-o", form, on=cluster)
    assert outcome.code == 2
    assert form.partition("=")[0] in outcome.err
