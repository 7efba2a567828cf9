"""The lines of ``gpushare recommend -o patch`` are run by a shell, with kubectl and an API server.

The test plays the device plugin, whose histories the API server fetches. Controllers of Kubernetes
roll a Deployment out and create the claims of its pods.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from chartconfig import SPACE
from fakeplugin import serving
from planes import plane

from environments import fakenodes
from environments.controlplane import ControlPlane
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import LimitEvent, UsageHistory, WorkloadKey
from host.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
SECONDS: Final = 60
GIB: Final = 1 << 30
DAYS: Final = 8 * 86400.0
GPU_MEM: Final = "aliyun.com/gpu-mem"
KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet", "CronJob")
NET: Final = {"name": "net", "resourceClaimName": "net"}


def history(kind: str, name: str, *, claims: bool) -> UsageHistory:
    """A workload that requests 16 GiB and used 6 in eight days."""
    found = UsageHistory(WorkloadKey("default", kind, name, "main"), pods=3, starts=12)
    now = time.time()
    found.record(now, 6 * GIB, requested_bytes=16 * GIB, claims=claims)
    found.first_seen, found.last_seen, found.reached = now - DAYS, now, LimitEvent()
    return found


WORKLOADS: Final = [(kind, name) for kind in KINDS for name in ("limits", "claims")]
KEPT: Final = ("Deployment", "kept")
"""Its claims come from another template."""
HISTORIES: Final = [history(*each, claims=each[1] != "limits") for each in (*WORKLOADS, KEPT)]


def workload(kind: str, name: str, spec: Object) -> Object:
    """An object of this kind with a template of pods."""
    labels = {"app": f"{kind.lower()}-{name}"}
    template: Object = {"metadata": {"labels": labels}, "spec": spec}
    body: Object = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        body["serviceName"] = name
    if kind == "CronJob":
        spec["restartPolicy"] = "Never"
        body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
    version = "batch/v1" if kind == "CronJob" else "apps/v1"
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": body}


def with_limits(kind: str) -> Object:
    """Two containers, one with 16 units of GPU memory."""
    amounts = {GPU_MEM: "16", "cpu": "1"}
    main = {"name": "main", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    return workload(kind, "limits", {"containers": [{"name": "log", "image": "none"}, main]})


def with_claims(kind: str, name: str, template: str) -> Object:
    """One container with two claims, of which one comes from a template."""
    claims = [{"name": each} for each in ("net", "gpu")]
    main = {"name": "main", "image": "none", "resources": {"claims": claims}}
    spec = {"containers": [main], "resourceClaims": [NET, gpu(template)]}
    return workload(kind, name, spec)


def gpu(template: str) -> Object:
    """The claim of a pod that comes from a template."""
    return {"name": "gpu", "resourceClaimTemplateName": template}


def share(name: str, memory: str = "16Gi") -> Object:
    """A template of claims."""
    exactly = {"deviceClassName": "gpushare", "capacity": {"requests": {"memory": memory}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


@pytest.fixture(scope="module")
def rolling(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A node whose plugin has the histories, and the controllers of Deployments and claims."""
    document = json.loads(encode_histories("node-00000", HISTORIES))
    controllers = ("deployment-controller", "replicaset-controller", "resourceclaim-controller")
    with serving({"/usage-history": lambda: document}) as plugin:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        plane.kubectl.apply(space, *fakenodes.nodes(1, gpus=1, units=40))
        plane.kubectl.apply(plugin.pod("node-00000"))
        status = json.dumps(plugin.status())
        flags = ("--subresource=status", "--type=merge", f"--patch={status}")
        plane.kubectl("patch", "pod", "plugin", "-n", SPACE, *flags)
        process = plane.controllers(*controllers)
        try:
            yield plane
        finally:
            process.stop()


@pytest.fixture(scope="module")
def lines(rolling: ControlPlane) -> list[str]:
    """What the command prints for workloads of all kinds."""
    claims = [with_claims(kind, "claims", "share") for kind in KINDS]
    owned = [*map(with_limits, KINDS), *claims, with_claims(*KEPT, "kept")]
    rolling.kubectl.apply(share("share"), share("kept"), share("kept-7gi", "9Gi"), *owned)
    command = [Path(sys.executable).parent / "gpushare", "recommend", "-A", "-o", "patch"]
    done = subprocess.run(
        [*command, f"--kubeconfig={rolling.kubeconfig}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def of(lines: list[str], *names: str) -> list[str]:
    """The lines about workloads with these names."""
    return [line for line in lines if any(f"/{name} --namespace=" in line for name in names)]


def run(plane: ControlPlane, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Pipe the lines to a shell, as the documentation shows."""
    folders = [str(plane.kubectl.binary.parent), os.environ["PATH"]]
    return subprocess.run(
        ["sh"],
        input="\n".join(lines),
        env={**plane.kubectl.environment, "PATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def pod_spec(plane: ControlPlane, kind: str, name: str) -> Object:
    """That of the template of a workload."""
    spec: Object = plane.kubectl.json("get", kind.lower(), name)["spec"]
    if kind == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: Object = spec["template"]["spec"]
    return found


def test_kubectl_gives_workloads_of_all_kinds_the_recommended_size(
    rolling: ControlPlane, lines: list[str]
) -> None:
    """Of limits and of claims; other containers, resources and claims stay as they are."""
    both = of(lines, "limits", "claims")
    assert len(both) == len(WORKLOADS)
    done = run(rolling, both)
    assert done.stdout.count(" patched") == len(WORKLOADS), done.stderr
    for kind in KINDS:
        log, main = pod_spec(rolling, kind, "limits")["containers"]
        assert log.get("resources", {}) == {}
        assert main["resources"]["limits"] == {GPU_MEM: "7", "cpu": "1"}
        assert main["resources"]["requests"] == {GPU_MEM: "7", "cpu": "1"}
        claimed = pod_spec(rolling, kind, "claims")
        assert sorted(claimed["resourceClaims"], key=str) == [gpu("share-7gi"), NET]
        assert claimed["containers"][0]["resources"]["claims"] == [{"name": "net"}, {"name": "gpu"}]
    again = run(rolling, both)
    assert again.stdout.count(" patched (no change)") == len(WORKLOADS), again.stderr


def test_the_pods_of_a_rollout_have_claims_of_the_recommended_size(
    rolling: ControlPlane, lines: list[str]
) -> None:
    """The template that the second command refers to is the one that the first created."""
    done = run(rolling, of(lines, "claims"))
    assert done.stdout.count(" patched") == len(KINDS), done.stderr

    def sizes() -> set[str]:
        items = rolling.kubectl.items("resourceclaims")
        requests = [one["spec"]["devices"]["requests"][0]["exactly"] for one in items]
        return {one["capacity"]["requests"]["memory"] for one in requests}

    until("a pod of the rollout has a claim of 7 GiB", lambda: "7Gi" in sizes(), seconds=SECONDS)


def test_a_workload_keeps_its_template_where_the_new_one_cannot_be_created(
    rolling: ControlPlane, lines: list[str]
) -> None:
    """Another template has the name, with another size, and no template can change."""
    done = run(rolling, of(lines, "kept"))
    assert done.returncode != 0
    assert "field is immutable" in done.stderr
    assert gpu("kept") in pod_spec(rolling, *KEPT)["resourceClaims"]
