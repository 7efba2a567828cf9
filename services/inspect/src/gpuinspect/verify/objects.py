"""The objects of a run: its namespace, the guard that outlives a crash, and the pods of the checks.

Every pod is owned by the guard, a Job with a deadline that its controller deletes when it has
ended. In a namespace of the run's own the guard deletes the namespace first, which a Role there
permits it to.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from gpucore.wire.names import MANAGED_BY, VERIFY, VERIFY_SECONDS
from gpucore.wire.quantity import number

Object = dict[str, Any]

GUARD: Final = "gpushare-verify"
FOLDER: Final = "/run/gpuprobe"
FOLDER_VARIABLE: Final = "GPUPROBE_FOLDER"
NAMESPACE_PREFIX: Final = "gpushare-verify-"
OUTSIDE: Final = "outside.json"
GRACE_SECONDS: Final = 30
"""Time that a run has to end by itself before the guard ends it."""
RETRY_SECONDS: Final = 3 * GRACE_SECONDS
"""Time that the guard has to delete the namespace, and to be started again for that."""
USER: Final = 65532
"""Of the pods of the checks."""


class RunPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pods of a run are, and what they have in common.

    Attributes:
        own: the namespace is the run's, and goes with it.
        run: random text that tells runs apart.
        seconds: of the whole run.
        guard_uid: of the guard; empty before it exists.
        pull_secrets: Secrets of the namespace with the credentials for the image.
    """

    namespace: str
    own: bool
    image: str
    node: str
    run: str
    seconds: int
    scheduler: str = ""
    runtime_class: str = ""
    guard_uid: str = ""
    pull_secrets: tuple[str, ...] = ()


def labels(name: str) -> dict[str, str]:
    """Labels of every object of a run."""
    return {MANAGED_BY: GUARD, VERIFY: name}


def namespace(place: RunPlace) -> Object:
    """The namespace of the run."""
    meta = {
        "name": place.namespace,
        "labels": labels("namespace"),
        "annotations": {VERIFY_SECONDS: str(place.seconds)},
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def selector() -> str:
    """Label selector of all objects of all runs."""
    return f"{MANAGED_BY}={GUARD}"


def expired(item: Object, now: datetime) -> bool:
    """A namespace of a run whose guard, if it ever came to be, has ended long ago.

    Args:
        item: a namespace.
        now: by the clock of the API server, as is the creation of the namespace.
    """
    meta = item["metadata"]
    seconds = number(str(meta.get("annotations", {}).get(VERIFY_SECONDS, "")))
    of_a_run = labels("namespace").items() <= meta.get("labels", {}).items()
    if seconds is None or not of_a_run or not meta["name"].startswith(NAMESPACE_PREFIX):
        return False
    age = now - datetime.fromisoformat(meta["creationTimestamp"])
    return age.total_seconds() > seconds + GRACE_SECONDS + RETRY_SECONDS


def guard_rights(place: RunPlace) -> list[tuple[str, Object]]:
    """ServiceAccount, Role and RoleBinding of the guard, with the paths to create them at."""
    meta = {"name": GUARD, "namespace": place.namespace, "labels": labels("guard")}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    rule: Object = {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "resourceNames": [place.namespace],  # of no other namespace
        "verbs": ["delete"],
    }
    version = "rbac.authorization.k8s.io/v1"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": GUARD}
    subject = {"kind": "ServiceAccount", "name": GUARD, "namespace": place.namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    role = {"apiVersion": version, "kind": "Role", "metadata": meta, "rules": [rule]}
    binding: Object = {"apiVersion": version, "kind": "RoleBinding", "metadata": meta}
    binding |= {"roleRef": reference, "subjects": [subject]}
    return [
        (f"/api/v1/namespaces/{place.namespace}/serviceaccounts", account),
        (f"{rbac}/roles", role),
        (f"{rbac}/rolebindings", binding),
    ]


def guard(place: RunPlace, now: datetime | None = None) -> Object:
    """The Job that ends the run at its deadline if the run has not.

    Args:
        now: by the clock of the API server; ``None`` unknown. The guard waits until a fixed time,
            since its pod may be started again.
    """
    seconds = place.seconds + GRACE_SECONDS
    target = place.namespace if place.own else ""
    until = "" if now is None else f"{now.timestamp() + seconds:.0f}"
    command = ["python3", "-m", "gpuprobe.guard", str(seconds), target, until]
    spec: Object = {
        **_pod_spec(place, command, resources={}),
        "restartPolicy": "Never",
        "automountServiceAccountToken": place.own,
    }
    if place.own:
        spec["serviceAccountName"] = GUARD
    meta = {"name": guard_name(place), "namespace": place.namespace, "labels": labels("guard")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "backoffLimit": 4,
            "activeDeadlineSeconds": seconds + RETRY_SECONDS,
            "ttlSecondsAfterFinished": 0,
            "template": {"metadata": {"labels": labels("guard")}, "spec": spec},
        },
    }


def guard_name(place: RunPlace) -> str:
    """Name of the Job; runs in one namespace that is not theirs differ in it."""
    return GUARD if place.own else f"{GUARD}-{place.run}"


def deletion(place: RunPlace) -> str:
    """The command that deletes every object of a run."""
    if place.own:
        return f"kubectl delete namespace {place.namespace}"
    return f"kubectl delete job {guard_name(place)} -n {place.namespace}"


def pod(
    place: RunPlace,
    name: str,
    plan: Sequence[Mapping[str, Any]],
    limits: Mapping[str, int],
    *,
    seconds: int,
    annotations: Mapping[str, str] | None = None,
    outside: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, str] | None = None,
) -> Object:
    """A pod that runs a plan and ends.

    Args:
        limits: GPU resources.
        seconds: its deadline.
        outside: plan of a process that enters the container while it runs; none by default.
        variables: more environment variables.
    """
    amounts = {key: str(value) for key, value in limits.items()}
    spec = _pod_spec(place, program(plan), resources={"limits": amounts})
    (container,) = spec["containers"]
    more = variables or {}
    container["env"] += [{"name": name, "value": value} for name, value in more.items()]
    if outside:
        container["startupProbe"] = {
            "exec": {"command": [*program(outside), OUTSIDE]},
            "timeoutSeconds": 100,
            "periodSeconds": 1,
            "failureThreshold": 60,
        }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": guard_name(place),
        "uid": place.guard_uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": place.namespace,
            "labels": labels("check"),
            "annotations": dict(annotations or {}),
            "ownerReferences": [owner],
        },
        "spec": {
            **spec,
            **({"schedulerName": place.scheduler} if place.scheduler else {}),
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "activeDeadlineSeconds": seconds,
        },
    }


def program(plan: Sequence[Mapping[str, Any]]) -> list[str]:
    """The command that runs a plan."""
    return ["python3", "-m", "gpuprobe", json.dumps(list(plan), separators=(",", ":"))]


def _pod_spec(place: RunPlace, command: Sequence[str], *, resources: Object) -> Object:
    """As the strictest pod security standard wants it, on the node of the check."""
    field: Object = {"key": "metadata.name", "operator": "In", "values": [place.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec: Object = {
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        },
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(place, command, resources)],
        "volumes": [{"name": "exchange", "emptyDir": {}}],
    }
    if place.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in place.pull_secrets]
    return spec | ({"runtimeClassName": place.runtime_class} if place.runtime_class else {})


def _container(place: RunPlace, command: Sequence[str], resources: Object) -> Object:
    return {
        "name": "probe",
        "image": place.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [
            {"name": FOLDER_VARIABLE, "value": FOLDER},
            {"name": "CUDA_CACHE_DISABLE", "value": "1"},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, **resources},
        "volumeMounts": [{"name": "exchange", "mountPath": FOLDER}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
