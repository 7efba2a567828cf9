"""How the steps of a guide are run."""

from pathlib import Path

import pytest

from guides.blocks import Command, File, Guide, GuideTarget
from guides.session import GuideSession, StepError


def page(*steps: File | Command) -> Guide:
    """A guide of these steps."""
    return Guide(Path("page.md"), GuideTarget.OFFLINE, steps)


def command(text: str, *expected: str, status: int = 0) -> Command:
    """A command on line 7 of the page."""
    return Command(text, expected, status, 7)


def test_files_are_saved_where_commands_run_and_both_streams_are_output(tmp_path: Path) -> None:
    """The page's words for the reader's own things are replaced, and put back in outputs."""
    session = GuideSession(tmp_path, stands_for={"your/image": "built:1"})
    session.follow(
        page(
            File("pod.yaml", "image: your/image\n", 1),
            command("cat pod.yaml; echo oops >&2", "image: your/image", "oops"),
        )
    )
    assert (tmp_path / "pod.yaml").read_text() == "image: built:1\n"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (command("echo b", "a"), r"page.md:7: \$ echo b\n.*\na\n.*exit 0\)\nb"),
        (command("exit 4"), r"exit 0\)\n.*\n.*exit 4\)"),
        (command("true", status=1), r"exit 1\)\n.*\n.*exit 0\)"),
        (command("false | true"), r"what came \(exit 1\)"),
    ],
)
def test_the_first_command_that_does_otherwise_ends_the_guide_with_its_place(
    tmp_path: Path, wrong: Command, sentence: str
) -> None:
    """The report shows the page's line, what it reports and what came."""
    with pytest.raises(StepError, match=sentence):
        GuideSession(tmp_path).follow(page(wrong, command("touch after")))
    assert not (tmp_path / "after").exists()


@pytest.mark.slow
def test_a_command_that_looks_is_run_again_and_one_that_acts_is_not(tmp_path: Path) -> None:
    """The program counts its calls: the third shows what the page specifies."""
    program = tmp_path / "gpushare"
    program.write_text("#!/bin/sh\necho x >>calls; wc -l <calls\n")
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    GuideSession(tmp_path, environment=path, patience_s=30).follow(
        page(command("gpushare inspect", "3"))
    )
    acts = page(command("gpushare serve custom", "9"))
    with pytest.raises(StepError):
        GuideSession(tmp_path, environment=path, patience_s=30).follow(acts)
    assert (tmp_path / "calls").read_text() == "x\n" * 4


@pytest.mark.slow
def test_a_command_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """What it had shown until then is in the report, however long it takes to begin."""
    endless, report = command("echo begun; sleep 600 | cat"), ""
    for limit_s in (0.5, 5, 60):
        if not report.endswith("begun\n"):
            with pytest.raises(StepError, match=r"exit 124\)") as ended:
                GuideSession(tmp_path, limit_s=limit_s).follow(page(endless))
            report = str(ended.value)
    assert report.endswith("exit 124)\nbegun\n")
