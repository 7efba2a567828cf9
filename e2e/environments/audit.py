"""The API server's audit log of what the stack's own accounts ask for.

Switched on where the cluster is made: a policy file beside the cluster's other files, two flags and
two mounts of the API server. Only who did what is logged, and only of the stack's namespace; what a
request held never is.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from cluster import kindconfig
from cluster.kindconfig import NodeMount
from host.commands import run_command

POLICY_IN_NODE = "/etc/gpushare/audit"
LOG_IN_NODE = "/var/log/gpushare-audit"
READ_SECONDS = 180
DECISION = "authorization.k8s.io/decision"
RECEIVED = "RequestReceived"
_LOG = f"{LOG_IN_NODE}/audit.log"
_LOG_MEGABYTES = "50"


class Use(msgspec.Struct, frozen=True, order=True):
    """One right as an account used it.

    Attributes:
        account: name of the service account.
        agent: the program, for accounts that two of them share.
        namespace: of the object; empty for one of the cluster, or a question about all.
        resource: with its sub-resource, as rules spell it: ``pods/binding``.
    """

    account: str
    agent: str
    namespace: str
    group: str
    resource: str
    verb: str


def write_policy(folder: Path, namespace: str) -> NodeMount:
    """Write the policy for a stack in ``namespace``; the mount that the control plane needs.

    A watch is logged when it is requested: its end is logged too late, after minutes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ours = {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{namespace}"]}
    rules = [
        {**ours, "verbs": ["watch"]},
        {**ours, "omitStages": [RECEIVED]},
        {"level": "None"},
    ]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
    (folder / "policy.yaml").write_text(json.dumps(policy))
    return NodeMount(folder, POLICY_IN_NODE)


def kubeadm_patches() -> list[str]:
    """What kubeadm must tell the API server, as kind merges it."""
    flags = {
        "audit-policy-file": f"{POLICY_IN_NODE}/policy.yaml",
        "audit-log-path": _LOG,
        "audit-log-maxsize": _LOG_MEGABYTES,
        "audit-log-maxbackup": "2",
    }
    volumes = [
        {"name": "audit-policy", "hostPath": POLICY_IN_NODE, "mountPath": POLICY_IN_NODE}
        | {"readOnly": True, "pathType": "Directory"},
        {"name": "audit-log", "hostPath": LOG_IN_NODE, "mountPath": LOG_IN_NODE}
        | {"readOnly": False, "pathType": "DirectoryOrCreate"},
    ]
    return kindconfig.part_patches("apiServer", flags, extraVolumes=volumes)


def uses(control_plane: str) -> frozenset[Use]:
    """Every right that an account of the stack has used, by the log in this node.

    Raises:
        SetupError: there is no log, so the cluster was made without one.
    """
    return frozenset(_use(event) for event in _log(control_plane) if not _refused(event))


def refusals(control_plane: str, *, since: datetime) -> frozenset[Use]:
    """Requests from then on that no role allows.

    An allowed request may still fail, as that to create an event does in a namespace that ends.

    Raises:
        SetupError: as :func:`uses`.
    """
    return frozenset(
        _use(event) for event in _log(control_plane) if _refused(event) and _when(event) >= since
    )


def _log(control_plane: str) -> Iterator[Mapping[str, Any]]:
    """Questions about objects, as the API server noted them."""
    read = ["docker", "exec", control_plane, "sh", "-c", f"cat {LOG_IN_NODE}/*.log"]
    for line in run_command(read, timeout_s=READ_SECONDS).splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # the line that is being written
            continue
        if "objectRef" in event:
            yield event


def _refused(event: Mapping[str, Any]) -> bool:
    return bool(event.get("annotations", {}).get(DECISION) == "forbid")


def _when(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def _use(event: Mapping[str, Any]) -> Use:
    target = event["objectRef"]
    parts = [target.get("resource", ""), target.get("subresource", "")]
    return Use(
        account=event["user"]["username"].rpartition(":")[2],
        agent=event.get("userAgent", "").partition("/")[0],
        namespace=target.get("namespace", ""),
        group=target.get("apiGroup", ""),
        resource="/".join(filter(None, parts)),
        verb=event["verb"],
    )
