"""Rights and their use: what counts as the same thing, and what the API server logs."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from environments import audit
from environments.audit import Use
from environments.rights import Right, granted

HERE = Right("gpushare-scheduler", "kube-system", "", "configmaps", "list", "extender")


def use(**more: str) -> Use:
    """A use of that right, but for what is specified."""
    known = {
        "account": "gpushare-scheduler",
        "agent": "gpushare-extender",
        "namespace": "kube-system",
        "group": "",
        "resource": "configmaps",
        "verb": "list",
    }
    return Use(**{**known, **more})


def test_a_right_is_used_by_the_same_request() -> None:
    """Account, group, resource, verb and namespace agree; the program counts where one is given."""
    assert HERE.used_by(use(), agent="")
    assert HERE.used_by(use(), agent="gpushare-extender")
    assert HERE._replace(namespace="").used_by(use(namespace="elsewhere"), agent="")


@pytest.mark.parametrize(
    "other",
    [
        {"account": "default"},
        {"agent": "kube-scheduler"},
        {"namespace": "default"},
        {"group": "apps"},
        {"resource": "configmaps/status"},
        {"verb": "watch"},
    ],
)
def test_any_difference_is_another_right(other: dict[str, str]) -> None:
    """A use of something else does not excuse a right that nobody uses."""
    assert not HERE.used_by(use(**other), agent="gpushare-extender")


def test_only_the_stacks_accounts_are_logged_and_no_contents(tmp_path: Path) -> None:
    """The policy names one namespace's accounts with level Metadata; the rest is left out."""
    mount = audit.write_policy(tmp_path / "audit", "gpushare")
    policy = json.loads((mount.host / "policy.yaml").read_text())
    *ours, last = policy["rules"]
    assert {(rule["level"], *rule["userGroups"]) for rule in ours} == {
        ("Metadata", "system:serviceaccounts:gpushare")
    }
    assert last == {"level": "None"}
    server = json.loads(audit.kubeadm_patches()[0])["apiServer"]
    assert server["extraArgs"]["audit-policy-file"] == f"{mount.container}/policy.yaml"
    assert {each["mountPath"] for each in server["extraVolumes"]} >= {mount.container}


def audited(verb: str, decision: str, code: int) -> str:
    """One line of the log about a request for that list of ConfigMaps."""
    event = {
        "verb": verb,
        "user": {"username": "system:serviceaccount:gpushare:gpushare-scheduler"},
        "userAgent": "gpushare-extender/1",
        "objectRef": {"resource": "configmaps", "namespace": "kube-system"},
        "requestReceivedTimestamp": "2026-11-28T12:00:00.000000Z",
        "responseStatus": {"code": code},
        "annotations": {"authorization.k8s.io/decision": decision},
    }
    return json.dumps(event)


def test_a_refusal_is_what_no_role_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """403 is also the answer to whoever creates an event in a namespace that ends."""
    log = "\n".join([audited("list", "forbid", 403), audited("create", "allow", 403)])
    monkeypatch.setattr(audit, "run_command", lambda *_, **__: log)
    begun = datetime(2026, 11, 28, 11, tzinfo=UTC)
    assert audit.refusals("control-plane", since=begun) == {use()}
    assert audit.uses("control-plane") == {use(verb="create")}


class FakeKubectl:
    """A cluster with one role of the release, one binding to it and one to a role of others."""

    def items(self, kinds: str, *_: str) -> list[object]:
        """Objects of the requested kinds."""
        if kinds.startswith("clusterroles,"):
            rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
            return [{"kind": "Role", "metadata": {"name": "extender"}, "rules": [rule]}]
        return [
            {
                "metadata": {"name": "b", "namespace": "kube-system"},
                "roleRef": {"kind": kind, "name": name},
                "subjects": [{"name": "gpushare-scheduler"}],
            }
            for kind, name in (("Role", "extender"), ("ClusterRole", "system:kube-scheduler"))
        ]


def test_rights_are_those_of_own_roles_where_they_are_bound() -> None:
    """A role of the cluster's own is not looked at; the binding specifies where a right holds."""
    assert granted(FakeKubectl(), "gpushare") == {HERE}  # type: ignore[arg-type]
