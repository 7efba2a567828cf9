"""The workflows of GitHub Actions call targets that the Makefile has, and nothing beside them."""

import re
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")

Job = dict[str, Any]


def variants(job: Job) -> Iterator[dict[str, str]]:
    """The combinations of a job's matrix; one empty combination without a matrix."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    included = matrix.pop("include", [])
    names, values = list(matrix), list(matrix.values())
    yield from (dict(zip(names, some, strict=True)) for some in product(*values) if some)
    yield from included
    if not names and not included:
        yield {}


def commands(workflow: Path) -> list[str]:
    """Every command that a workflow runs, for each combination of its jobs."""
    jobs: list[Job] = list(yaml.safe_load(workflow.read_text())["jobs"].values())
    return [
        MATRIX.sub(lambda name, one=one: one[name[1]], step["run"])
        for job in jobs
        for one in variants(job)
        for step in job["steps"]
        if "run" in step
    ]


def all_commands() -> list[str]:
    """Of all workflows."""
    return [command for workflow in WORKFLOWS for command in commands(workflow)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_runs_a_target_of_the_makefile(workflow: Path) -> None:
    """What continuous integration does, anybody can do with the same command."""
    for command in commands(workflow):
        program, target, *_ = command.split()
        assert program == "make", command
        assert target in TARGETS, command


def test_the_cases_run_on_the_newest_and_the_oldest_kubernetes() -> None:
    """Both ends of what is supported."""
    assert {"make e2e", "make e2e-oldest"} <= set(all_commands())


def test_the_unit_tests_run_on_every_python_from_the_oldest_supported_one() -> None:
    """No version is left out between the first and the last."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())["jobs"]
    runs = [one["python"] for one in variants(jobs["check"]) if one["target"] == "unit"]
    minors = sorted(int(version.removeprefix("3.")) for version in runs)
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f">=3.{minors[0]}" == oldest
    assert minors == list(range(minors[0], minors[0] + len(minors)))
    assert len(minors) >= 4


def test_every_line_of_codeowners_names_files_that_exist() -> None:
    """A line for a folder that was renamed would leave it without a reviewer."""
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    rules = [line.split() for line in lines if not line.startswith("#")]
    assert rules[0][0] == "*"
    for path, *owners in rules[1:]:
        assert (ROOT / path.lstrip("/")).is_dir(), path
        assert all(owner.startswith("@gpushare/") for owner in owners)
        assert owners


def test_a_tag_makes_a_release_of_its_version() -> None:
    """The version is the tag without its first letter; the workflow's identity signs it."""
    release = ROOT / ".github" / "workflows" / "release.yaml"
    (command,) = (one for one in commands(release) if one.startswith("make release "))
    assert 'VERSION="${TAG#v}"' in command
    assert 'REGISTRY="$REGISTRY" IDENTITY=1' in command
    assert yaml.safe_load(release.read_text())[True]["push"]["tags"] == ["v*"]


def test_every_stage_of_make_test_runs_in_a_workflow() -> None:
    """A stage that runs on nobody's change would fail unseen."""
    assert {"make lint", "make unit", "make docs"} <= set(all_commands())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_the_repository_only(workflow: Path) -> None:
    """No job can write to the repository, and none runs without a limit of time."""
    found = yaml.safe_load(workflow.read_text())
    assert found["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in found["jobs"].values())
    allowed = {"contents": "read"}
    if workflow.stem == "release":
        allowed |= {"packages": "write", "id-token": "write"}
    for job in found["jobs"].values():
        assert job.get("permissions", allowed) == allowed


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_expression_is_pasted_into_a_command(workflow: Path) -> None:
    """The name of a branch or a tag is text that others choose; a shell must not run it."""
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        for step in job["steps"]:
            assert "${{" not in MATRIX.sub("", step.get("run", ""))
