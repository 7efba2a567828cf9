"""The runtime wrapper takes one capability out of every description and then becomes runc."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster import runcwrapper

PROCESS: dict[str, object] = {
    "oomScoreAdj": -500,
    "capabilities": {
        "bounding": ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"],
        "effective": ["CAP_SYS_RESOURCE"],
        "ambient": [],
    },
}
CLEAN = {
    "oomScoreAdj": 0,
    "capabilities": {"bounding": ["CAP_SYS_ADMIN"], "effective": [], "ambient": []},
}


def copy_of(value: Mapping[str, object]) -> dict[str, object]:
    return json.loads(json.dumps(value))  # type: ignore[no-any-return]


def test_a_container_loses_the_capability_in_every_set() -> None:
    """A bundle's config.json keeps all but CAP_SYS_RESOURCE and a negative OOM score."""
    spec = {"ociVersion": "1.0.2", "process": copy_of(PROCESS)}
    assert runcwrapper.without_capability(spec) == {"ociVersion": "1.0.2", "process": CLEAN}


def test_an_exec_process_has_its_capabilities_at_top_level() -> None:
    """The process file of `exec` is edited although it has no `process` key."""
    assert runcwrapper.without_capability(copy_of(PROCESS)) == CLEAN


def test_a_description_without_capabilities_is_left_alone() -> None:
    """An unprivileged process that lists none passes unchanged."""
    spec = {"process": {"args": ["true"], "oomScoreAdj": 100}}
    assert runcwrapper.without_capability(copy_of(spec)) == spec


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["--root", "/run", "create", "--bundle", "/b", "id"], "/b/config.json"),
        (["run", "-b", "/b", "id"], "/b/config.json"),
        (["create", "--bundle=/b", "id"], "/b/config.json"),
        (["create", "id"], "config.json"),
        (["--log", "/l", "exec", "--process", "/tmp/p", "id"], "/tmp/p"),
        (["exec", "-p", "/tmp/p", "id"], "/tmp/p"),
        (["exec", "id", "sh"], None),
        (["kill", "id", "9"], None),
        (["--version"], None),
    ],
)
def test_the_description_is_found_where_runc_finds_it(
    arguments: list[str], path: str | None
) -> None:
    """The edited file is the one the given runc command reads; other commands have none."""
    assert runcwrapper.description(arguments) == (Path(path) if path else None)


def test_the_installed_file_stands_alone_and_becomes_runc(tmp_path: Path) -> None:
    """Run as a program with no path to our package it edits the bundle and passes all arguments."""
    (tmp_path / "config.json").write_text(json.dumps({"process": PROCESS}))
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    words = ["create", "--bundle", str(tmp_path), "id"]
    done = subprocess.run(
        [sys.executable, "-IS", runcwrapper.__file__, *words],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.split() == words
    assert json.loads((tmp_path / "config.json").read_text()) == {"process": CLEAN}
