"""What the roles of a release grant to its accounts, as the cluster has them, right by right."""

from collections.abc import Iterator
from typing import NamedTuple

from environments.audit import Use
from environments.kubectl import Kubectl, Object


class Right(NamedTuple):
    """One verb on one resource.

    Attributes:
        namespace: where it holds; empty: everywhere.
        role: that grants it.
    """

    account: str
    namespace: str
    group: str
    resource: str
    verb: str
    role: str

    def used_by(self, use: Use, *, agent: str) -> bool:
        """This use needs the right; ``agent`` narrows it to one program, empty does not."""
        return (
            (use.account, use.group, use.resource, use.verb)
            == (self.account, self.group, self.resource, self.verb)
            and self.namespace in {"", use.namespace}
            and agent in {"", use.agent}
        )

    def __str__(self) -> str:
        """For the message of a failed test."""
        where = f" in {self.namespace}" if self.namespace else ""
        resource = "/".join(filter(None, (self.group, self.resource)))
        return f"{self.role}: {self.verb} {resource}{where} for {self.account}"


def granted(kubectl: Kubectl, release: str) -> set[Right]:
    """All rights of a release's own roles; roles that the cluster brings are not looked at."""
    chosen = ("-A", "-l", f"app.kubernetes.io/instance={release}")
    items = kubectl.items("clusterroles,roles", *chosen)
    roles = {(item["kind"], item["metadata"]["name"]): item for item in items}
    found: set[Right] = set()
    for binding in kubectl.items("clusterrolebindings,rolebindings", *chosen):
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        if role is not None:
            found.update(_rights(binding, role))
    return found


def _rights(binding: Object, role: Object) -> Iterator[Right]:
    namespace = binding["metadata"].get("namespace", "")
    for subject in binding["subjects"]:
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        name = role["metadata"]["name"]
                        yield Right(subject["name"], namespace, group, resource, verb, name)
