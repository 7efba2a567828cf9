"""What is read from a page."""

from pathlib import Path

import pytest

from guides.blocks import Command, File, GuideError, GuideTarget, found, guide

PAGE = """\
# Title

<!-- runs: offline -->

```yaml title="pod.yaml"
kind: Pod
```

```sh
not run
```

```console
$ first one \\
> --with more
out of it

more
$ second  # exit 3
```
"""


def test_a_page_is_its_files_and_commands_in_order_with_their_lines(tmp_path: Path) -> None:
    """Titled fences are files, consoles are commands with outputs, other fences are nothing."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    read = guide(page)
    assert read is not None
    assert read.place is GuideTarget.OFFLINE
    assert read.steps == (
        File("pod.yaml", "kind: Pod\n", 5),
        Command("first one \\\n--with more", ("out of it", "", "more"), 0, 14),
        Command("second", (), 3, 19),
    )


def test_what_differs_elsewhere_is_left_open(tmp_path: Path) -> None:
    """Only what is in brackets, and only within these words."""
    page = tmp_path / "page.md"
    note = "<!-- differs: out of [it] -->\n"
    page.write_text(PAGE.replace("<!-- runs: offline -->\n", f"<!-- runs: offline -->\n{note}"))
    read = guide(page)
    assert read is not None
    outputs = [step.expected for step in read.steps if isinstance(step, Command)]
    assert outputs[0] == ("out of ...", "", "more")


@pytest.mark.parametrize("words", ["out of it", "out of [that]"])
def test_what_differs_must_be_shown_and_have_brackets(tmp_path: Path, words: str) -> None:
    """A changed output must not leave an old line behind."""
    page = tmp_path / "page.md"
    page.write_text(f"{PAGE}\n<!-- differs: {words} -->\n")
    with pytest.raises(GuideError, match="has nothing in brackets, or no output shows it"):
        guide(page)


def test_the_tutorial_shows_whole_outputs() -> None:
    """Nothing is left out of them, and what differs elsewhere is open as it was with dots."""
    page = Path(__file__).parents[3] / "docs" / "tutorial.md"
    assert "..." not in page.read_text()
    read = guide(page)
    assert read is not None
    outputs = [line for step in read.steps if isinstance(step, Command) for line in step.expected]
    assert "NVIDIA_VISIBLE_DEVICES=GPU-..." in outputs
    assert "Where:      10 GiB on GPU ... of node ..." in outputs


def test_a_page_that_does_not_say_that_it_runs_is_no_guide(tmp_path: Path) -> None:
    """Pages are read by people first."""
    (tmp_path / "page.md").write_text(PAGE.replace("<!-- runs: offline -->", ""))
    assert guide(tmp_path / "page.md") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PAGE.replace("offline", "mars"), "runs on 'mars', not on one of kind, original, offline"),
        (PAGE.replace("$ first", "first"), r"page.md:14: a console begins with a command"),
        (PAGE[: PAGE.index("```sh")], "is marked to run and has no command"),
        (PAGE.removesuffix("```\n"), "page.md:13: the fence is not closed"),
    ],
)
def test_a_page_that_cannot_run_is_an_error_that_names_the_place(
    tmp_path: Path, text: str, sentence: str
) -> None:
    """A typo in a page must not take its commands out of the tests unseen."""
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(GuideError, match=sentence):
        guide(tmp_path / "page.md")


def test_guides_are_found_by_place_below_a_folder(tmp_path: Path) -> None:
    """Sub folders count, other places do not."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text(PAGE)
    (tmp_path / "a.md").write_text(PAGE.replace("offline", "kind"))
    assert [page.path.name for page in found(tmp_path, GuideTarget.OFFLINE)] == ["b.md"]
    assert [page.path.name for page in found(tmp_path, GuideTarget.KIND)] == ["a.md"]
