"""The workload of a pod, from its controller and without further reads of the API server.

A ReplicaSet is named after its Deployment and the hash in the pod's label, a Job of a CronJob after
the CronJob and the minute it was due.
"""

import re
from typing import Final

from gpucore.wire.pod.controllers import Controller
from gpucore.wire.pod.spec import Pod, created

_HASH: Final = "pod-template-hash"
_DUE: Final = re.compile(r"(?P<name>.+)-(?P<minute>[0-9]{8,10})")
_LATE_SECONDS: Final = 7 * 24 * 3600.0
"""How long after its minute a pod of a CronJob may be created, retries included."""


def workload_of(pod: Pod, controller: Controller | None) -> tuple[str, str]:
    """Kind and name of the workload; the pod itself where it has no controller."""
    if controller is None:
        return "Pod", pod.name
    if controller.kind == "ReplicaSet":
        suffix = f"-{pod.labels.get(_HASH, '')}"
        name = controller.name.removesuffix(suffix)
        return ("Deployment", name) if name and name != controller.name else _own(controller)
    if controller.kind == "Job":
        due = _DUE.fullmatch(controller.name)
        if due and 0 <= created(pod) - 60 * int(due["minute"]) <= _LATE_SECONDS:
            return "CronJob", due["name"]
    return _own(controller)


def _own(controller: Controller) -> tuple[str, str]:
    return controller.kind, controller.name
