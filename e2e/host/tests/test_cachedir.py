"""Cache entries are named by their inputs and are complete or absent."""

import os
import shutil
from pathlib import Path

import pytest

from host import cachedir


def test_the_key_follows_texts_names_and_contents(tmp_path: Path) -> None:
    """Any change of an input makes another key; the order files are given in does not."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("one")
    second.write_text("two")
    key = cachedir.content_key(["1.20"], [first, second])
    assert cachedir.content_key(["1.20"], [second, first]) == key
    assert cachedir.content_key(["1.21"], [first, second]) != key
    assert cachedir.content_key(["1", ".20"], [first, second]) != key
    second.write_text("three")
    assert cachedir.content_key(["1.20"], [first, second]) != key


PROGRAM = """\"\"\"Makes an image.\"\"\"
from host import docker

def make(tag):
    \"\"\"Make it.\"\"\"
    docker.build(tag, quick=True)  # the engine does the rest
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Makes an image.", "Makes the image of a node."),
        ("from host import docker", "import tools.docker as docker"),
        ("  # the engine does the rest", ""),
        ("docker.build(tag, quick=True)", "docker.build(\n        tag, quick=True\n    )"),
        ('    """Make it."""\n', ""),
    ],
)
def test_describing_or_moving_code_is_the_same_code(tmp_path: Path, old: str, new: str) -> None:
    """Words, imports and layout decide nothing about what is built."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(PROGRAM)
    after.write_text(PROGRAM.replace(old, new))
    assert before.read_text() != after.read_text()
    assert cachedir.code(before) == cachedir.code(after)


def test_code_that_does_something_else_is_other_code(tmp_path: Path) -> None:
    """An argument, a name or a text that is used may change what is built."""
    module = tmp_path / "module.py"
    found = set()
    for old, new in (("", ""), ("True", "False"), ("make(tag)", "make(name)"), ("build", "load")):
        module.write_text(PROGRAM.replace(old, new) if old else PROGRAM)
        found.add(cachedir.code(module))
    assert len(found) == 4


def test_renaming_a_file_makes_another_key(tmp_path: Path) -> None:
    """The same content under another name is another input."""
    file = tmp_path / "unit"
    file.write_text("x")
    key = cachedir.content_key([], [file])
    assert cachedir.content_key([], [file.rename(tmp_path / "other")]) != key


def test_an_entry_is_filled_once(cache: Path) -> None:
    """The second request finds the folder and does not build again."""
    calls: list[Path] = []

    def fill(folder: Path) -> None:
        calls.append(folder)
        (folder / "part").write_text("done")

    entry = cachedir.entry("thing", "0123", fill)
    assert cachedir.entry("thing", "0123", fill) == entry == cache / "thing-0123"
    assert (entry / "part").read_text() == "done"
    assert len(calls) == 1


def test_a_build_that_fails_leaves_no_entry(cache: Path) -> None:
    """After a failure the next request starts from an empty folder."""

    def breaks(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        cachedir.entry("thing", "0123", breaks)
    assert not (cache / "thing-0123").exists()
    entry = cachedir.entry("thing", "0123", lambda folder: (folder / "whole").touch())
    assert [path.name for path in entry.iterdir()] == ["whole"]


NOW = 2_000_000_000.0
LONG_AGO = NOW - cachedir.KEPT_SECONDS - 1


def left(cache: Path, **used: float) -> set[str]:
    """Names that a cleaning leaves of folders that were used at these times."""
    for name, when in used.items():
        folder = cache / name.replace("_", "-")
        folder.mkdir(parents=True)
        (folder / "part").write_text("x")
        os.utime(folder, (when, when))
    cachedir.prune(now=NOW)
    return {path.name for path in cache.iterdir() if path.is_dir()}


def test_what_was_not_used_for_long_goes(cache: Path) -> None:
    """Older entries of a kind, Go's own cache, and what a killed process left of its work."""
    found = left(
        cache,
        wheels_0123456789ab=LONG_AGO,
        wheels_123456789abc=LONG_AGO + 1,
        wheels_23456789abcd=NOW,
        context_x1y2z3=LONG_AGO,
        context_now=NOW,
        go=LONG_AGO,
        **{"kubernetes_0123456789ab.partial": LONG_AGO},
    )
    assert found == {"wheels-123456789abc", "wheels-23456789abcd", "context-now"}


def test_the_newest_of_a_kind_stays(cache: Path) -> None:
    """What took minutes to make is not made again only because nobody was here for a month."""
    found = left(
        cache,
        node_image_0123456789ab=LONG_AGO - 1,
        node_image_123456789abc=LONG_AGO,
        mocknvml_0123456789abcdef=LONG_AGO,
    )
    assert found == {"node-image-123456789abc", "mocknvml-0123456789abcdef"}


def test_an_old_version_goes_once_another_was_used_for_a_month(cache: Path) -> None:
    """Both that the code of today uses stay, also where nobody was here for long."""
    month = cachedir.SUPERSEDED_SECONDS
    found = left(
        cache,
        **{
            "kubernetes-1.37.1-0123456789ab": LONG_AGO,
            "kubernetes-1.20.2-0123456789ab": LONG_AGO - month,
            "kubernetes-1.36.4-0123456789ab": LONG_AGO - month - 1,
            "kubelet-1.36.3-0123456789ab": LONG_AGO - 2 * month,
        },
    )
    assert found == {
        "kubernetes-1.37.1-0123456789ab",
        "kubernetes-1.20.2-0123456789ab",
        "kubelet-1.36.3-0123456789ab",
    }


def test_a_folder_that_vanishes_meanwhile_stops_no_cleaning(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build removes its context between the listing and the look at it."""
    is_dir = Path.is_dir

    def vanishing(path: Path) -> bool:
        found = is_dir(path)
        if path.name == "context-other":
            shutil.rmtree(path)
        return found

    (cache / "context-other").mkdir(parents=True)
    (cache / "context-old").mkdir()
    os.utime(cache / "context-old", (LONG_AGO, LONG_AGO))
    monkeypatch.setattr(Path, "is_dir", vanishing)
    assert cachedir.prune(now=NOW) == ["context-old"]


def test_what_is_no_entry_stays(cache: Path) -> None:
    """Clusters, package lists and whatever else lies there are nobody's old entry."""
    names = {"clusters", "apt", "rootfs-x1y2z3", "tests-abc"}
    assert left(cache, **dict.fromkeys(names, LONG_AGO)) == names


def test_every_use_dates_an_entry(cache: Path) -> None:
    """An entry that was found is as new as one that was made."""
    made = cachedir.entry("thing", "0123456789ab", lambda folder: (folder / "part").touch())
    os.utime(made, (0, 0))
    cachedir.entry("thing", "0123456789ab", lambda folder: None)
    assert made.stat().st_mtime > 0
