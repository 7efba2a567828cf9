"""Checks of the cluster's own kube-scheduler, which calls the extender in mode ``extender``.

``kubeadm upgrade`` writes its manifest anew, and a new control-plane node has one of kubeadm.
"""

from collections.abc import Iterator
from typing import Final

from gpuinspect.cluster.kubeschedulers import INSTALL_FOLDER, kube_schedulers
from gpuinspect.cluster.schedulers import for_kube_scheduler
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called

check = Checklist()
_FLAGS: Final = ("config", "policy-config-file", "policy-configmap")
"""Flags that name a file or an object with extenders; those of policies until Kubernetes 1.22."""


@check(
    "kube-scheduler-configured",
    Level.FAIL,
    "the cluster's kube-scheduler has a configuration with extenders, in mode extender",
    do="run gpushare install-scheduler --apply on that control-plane node, and again after each "
    "kubeadm upgrade",
    needs=("ConfigMap",),
)
def _configured(evidence: Evidence) -> Iterator[str]:
    for named, configuration in _schedulers(evidence):
        if not configuration:
            yield f"{named} has no --config, so it does not call the extender"


@check(
    "kube-scheduler-installed",
    Level.WARN,
    "the cluster's kube-scheduler has the configuration of install-scheduler, in mode extender",
    do="check that this configuration has the extender of the chart, or run gpushare "
    "install-scheduler --apply on that control-plane node",
    needs=("ConfigMap",),
)
def _installed(evidence: Evidence) -> Iterator[str]:
    for named, configuration in _schedulers(evidence):
        if configuration and not configuration.startswith(f"--config={INSTALL_FOLDER}/"):
            yield f"{named} has {configuration}"


def _schedulers(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Name and the flag of the configuration of each, where they are to call the extender."""
    if for_kube_scheduler(evidence.snapshot, evidence.names):
        for pod, flags in kube_schedulers(evidence.snapshot):
            yield called(pod), next((f"--{x}={flags[x]}" for x in _FLAGS if x in flags), "")
