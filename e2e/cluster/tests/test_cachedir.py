"""Cache entries are named by their inputs and are complete or absent."""

from pathlib import Path

import pytest

from cluster import cachedir


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
