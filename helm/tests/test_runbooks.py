"""The commands of kubectl on the runbooks' pages fit what the chart installs."""

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from charting import CHART, Rendered, render

PAGES = sorted((CHART.parents[1] / "docs" / "runbooks").glob("*.md"))
COMMANDS = sorted(
    line.removeprefix("$ ")
    for page in PAGES
    for line in page.read_text().splitlines()
    if line.startswith("$ kubectl ")
)
RIGHTS = [line for line in COMMANDS if line.startswith("kubectl auth can-i ")]
LOGS = [line for line in COMMANDS if " logs " in line]


def installed() -> Rendered:
    """The release of the runbooks."""
    return render(namespace="gpushare")


def rules_of(rendered: Rendered, account: str) -> Iterator[Mapping[str, Any]]:
    """The rules of the chart's own roles that a service account has."""
    for scope in ("", "Cluster"):
        roles = {role["metadata"]["name"]: role for role in rendered.of(f"{scope}Role")}
        for binding in rendered.of(f"{scope}RoleBinding"):
            if account in [subject["name"] for subject in binding["subjects"]]:
                yield from roles.get(binding["roleRef"]["name"], {}).get("rules", ())


def permits(rule: Mapping[str, Any], verb: str, resource: str, group: str, name: str) -> bool:
    """As the API server reads a rule."""
    return (
        verb in rule["verbs"]
        and resource in rule["resources"]
        and group in rule["apiGroups"]
        and (not rule.get("resourceNames") or name in rule["resourceNames"])
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", RIGHTS)
def test_a_right_that_a_page_asks_for_is_one_that_the_chart_grants(line: str) -> None:
    """In `pods/binding` kubectl reads the name of a pod, and answers no whatever the role is."""
    words = shlex.split(line)[3:]
    flags = dict(word.split("=", 1) for word in words if "=" in word)
    kind, _, name = words[1].partition("/")
    resource, _, group = kind.partition(".")
    resource += f"/{flags['--subresource']}" if "--subresource" in flags else ""
    account = flags["--as"].rpartition(":")[2]
    rules = list(rules_of(installed(), account))
    assert any(permits(rule, words[0], resource, group, name) for rule in rules)


@pytest.mark.parametrize("line", LOGS)
def test_logs_are_read_of_every_replica(line: str) -> None:
    """Of a Deployment kubectl prints the log of one pod, which may be the one that is idle."""
    words = shlex.split(line)
    pods = dict(pairwise(words))
    assert not any(word.startswith("deployment/") for word in words)
    assert "-l" not in words or ("--prefix" in words and pods["-l"].startswith("app.kubernetes.io"))


@pytest.mark.slow
def test_objects_of_the_release_have_the_names_on_the_pages() -> None:
    """Secrets, Leases, accounts and jobs of a release `gpushare`, in one of the two modes."""
    both = (installed(), render(namespace="gpushare", values={"scheduler": {"mode": "extender"}}))
    names = {item["metadata"]["name"] for rendered in both for item in rendered.objects}
    named = {name for line in COMMANDS for name in re.findall(r"\bgpushare-[a-z-]+\b", line)}
    assert len(named) >= 4
    assert named <= names
