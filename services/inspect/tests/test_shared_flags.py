"""The flags that commands share: all of them everywhere, or the help gives the reason."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer
from drawncluster import FakeCluster, Gpu
from invoking import Run
from typer.main import get_command

from gpuinspect.commands.main import app
from gpuinspect.commands.options.absent import ABSENT, LETTERS, SHARED, absent_from, sentences
from gpuinspect.serving.request import ServerKind

SHORT: Final = {**LETTERS, "--filename": "-f", "--details": "-d"}
"""Letters of flags; the same letter for another flag would mislead."""
AS_ARENA: Final = tuple(f"serve {server}" for server in ServerKind)
"""Commands with the flags of arena, of which -l is --label and --selector has no letter."""
OWN_WORDS: Final = {
    ("inspect", "--namespace"): "nodes are of no namespace: the pods of -d are",
    ("inspect", "--all-namespaces"): "the default there, as of the original",
    ("watch", "--namespace"): "as inspect",
    ("watch", "--all-namespaces"): "as inspect",
    ("install-scheduler", "--namespace"): "that of the chart, not that of pods",
    ("verify", "--namespace"): "an existing one for its own pods, not that of pods to show",
    ("verify", "--output"): "JUnit as well, for CI systems",
    ("recommend", "--output"): "patches for kubectl as well",
    ("cost", "--request-timeout"): "the requests go to Prometheus",
    **{(path, "--selector"): "arena's: a label of the nodes for the pods" for path in AS_ARENA},
}
"""Commands whose help describes a shared flag in words of its own, and why."""


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that help lists, by its words."""
    if isinstance(command, typer.core.TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), f"{path} {name}".strip())
    elif not command.hidden:
        yield path, command


ALL: Final = dict(commands(get_command(app)))


def options(path: str) -> dict[str, Any]:
    """Options of a command by their long names."""
    return {name: each for each in ALL[path].params for name in each.opts if name[:2] == "--"}


@pytest.mark.parametrize("path", ALL)
def test_every_shared_flag_is_there_or_has_a_reason(path: str) -> None:
    """Never both, and never none of them."""
    lacking = [flag for flags, _ in absent_from(path) for flag in flags]
    assert sorted(lacking) == sorted(set(SHARED) - options(path).keys())


NUMBERS: Final = [
    (path, name)
    for path in ALL
    for name, option in options(path).items()
    if option.type.name == "float range"
]


@pytest.mark.parametrize("value", ["nan", "inf", "1e308"])
@pytest.mark.parametrize(("path", "name"), NUMBERS)
def test_a_number_that_means_nothing_is_refused(run: Run, path: str, name: str, value: str) -> None:
    """No command waits, multiplies or ends in a traceback with a number without a meaning."""
    outcome = run(*path.split(), name, value)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"Invalid value for '{name}'" in outcome.err


@pytest.mark.parametrize("path", ALL)
def test_every_float_has_a_range(path: str) -> None:
    """A float without one would pass the test above."""
    assert not [name for name, option in options(path).items() if option.type.name == "float"]


@pytest.mark.parametrize("name", ["--replicas", "--add-nodes"])
def test_whatif_places_a_limited_number(run: Run, name: str) -> None:
    """A number of replicas that no run would end with is refused with the range."""
    outcome = run("whatif", "-f", "pod.yaml", name, "9" * 22)
    assert outcome.code == 2
    assert "<=100000" in outcome.err


@pytest.mark.parametrize("path", ALL)
def test_help_gives_the_reasons(run: Run, path: str) -> None:
    """Below the flags."""
    said = " ".join(run(*path.split(), "--help").out.split())
    assert [each for each in sentences(path) if each not in said] == []


def test_reasons_are_of_commands_that_there_are() -> None:
    """A renamed command would lose its reasons."""
    assert set(ABSENT) <= set(ALL) | {path.partition(" ")[0] for path in ALL}


@pytest.mark.parametrize("path", sorted(ALL.keys() - set(AS_ARENA)))
def test_flags_are_spelled_alike(path: str) -> None:
    """A letter is of one flag, and a flag has its letter in every command."""
    letters = {letter: name for name, letter in SHORT.items()}
    for name, option in options(path).items():
        short = [each for each in option.opts if each[:2] != "--"]
        assert SHORT.get(name, None) in {None, *short}, f"{name} of {path} lacks its letter"
        assert {letters.get(each, name) for each in short} <= set(option.opts)


@pytest.mark.parametrize("flag", SHARED)
def test_shared_flags_are_described_alike(flag: str) -> None:
    """What a flag takes and means is the same wherever it is."""
    found = {
        (option.help, option.metavar)
        for path in ALL
        if (option := options(path).get(flag)) and (path, flag) not in OWN_WORDS
    }
    assert len(found) == 1


def test_a_letter_takes_its_value_behind_an_equals_sign(run: Run, cluster: FakeCluster) -> None:
    """As kubectl reads it; the value keeps an equals sign of its own."""
    cluster.node("a", gpus=[Gpu(8)], labels={"zone": "x"}).node("b", gpus=[Gpu(8)])
    assert "in namespace team;" in run("pending", "-n=team", on=cluster).err
    assert run("inspect", "-o=name", "-l=zone=x", on=cluster).out == "node/a\n"
    assert run("top", "node", "-o=name", "-lzone=x", on=cluster).out == "node/a\n"
    assert run("usage", "-A", "-o=json", on=cluster).out.startswith("{")
    assert run("inspect", "-d=yes", on=cluster).code == 2
