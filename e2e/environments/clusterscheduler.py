"""The cluster's own kube-scheduler, with an earlier startup probe.

As kubeadm sets it up, kubelet probes it for the first time after ten seconds, and a successor waits
for fifteen until a leader that went without a word counts as gone. Cases that replace it would
wait for both. How long it may take to start is left as it is.
"""

from cluster import kindconfig
from host.commands import run_command

ELECTION = {"leaseSeconds": 8, "renewSeconds": 6, "retrySeconds": 1}
"""For whoever leads here, in seconds, under the names of the chart's values."""
_MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
_FLAGS = {
    "leaseSeconds": "leader-elect-lease-duration",
    "renewSeconds": "leader-elect-renew-deadline",
    "retrySeconds": "leader-elect-retry-period",
}
_EDIT = """\
/startupProbe:/,/timeoutSeconds:/ {
  s/failureThreshold: 24$/failureThreshold: 120/
  s/initialDelaySeconds: 10$/initialDelaySeconds: 1/
  s/periodSeconds: 10$/periodSeconds: 2/
}
"""
# kubelet overlooks a file whose name begins with a dot.
_SCRIPT = f"""\
cd "$(dirname {_MANIFEST})"
until [ -s {_MANIFEST} ]; do sleep 0.2; done
cp -p {_MANIFEST} .edited
sed '{_EDIT}' {_MANIFEST} > .edited
mv .edited {_MANIFEST}
"""
_SECONDS = 300


def kubeadm_patches() -> list[str]:
    """The scheduler's flags as patches for kubeadm, as kind merges them."""
    flags = {_FLAGS[name]: f"{seconds}s" for name, seconds in ELECTION.items()}
    return kindconfig.part_patches("scheduler", flags)


def probe_early(control_plane: str) -> None:
    """Have kubelet probe sooner; waits for kubeadm to write the manifest, if it has not yet.

    Raises:
        SetupError: there is no manifest after two minutes, or no node.
    """
    run_command(["docker", "exec", control_plane, "sh", "-ec", _SCRIPT], timeout_s=_SECONDS)
