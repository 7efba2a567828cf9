"""Lines of ``gpushare recommend -o patch`` for workloads whose GPU memory is claimed.

The API server refuses every change of the spec of a ResourceClaimTemplate. So a command creates a
template with the new size and another name, and if that succeeds, a second one refers to it from
the workload, which starts a rollout. The old template stays: pods that run still name it.
"""

import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpucore.sizing.recommendation import Recommendation
from gpuinspect.queries.claim_sizes import ClaimSize, MeasuredWorkload, pod_template_path
from gpuinspect.terminal.wrapping import one_line

NOT_READ: Final = "its claims are not read from a file or a snapshot"


def claim_line(
    workload: MeasuredWorkload, found: Sequence[Recommendation], size: ClaimSize | str
) -> str:
    """The commands, or a comment where nothing can be changed.

    Args:
        workload: whose size changes.
        found: its recommendations.
        size: what to change, or why nothing can be.
    """
    if any(each.whole_gpu for each in found):
        size = "it may have a GPU of its own"
    return _comment(workload, found, size) if isinstance(size, str) else _commands(workload, size)


def _commands(workload: MeasuredWorkload, size: ClaimSize) -> str:
    """One line: the new template, and if it exists, the reference to it."""
    where = f"--namespace={workload.namespace}"
    manifest = msgspec.json.encode(size.template).decode()
    create = shlex.join(["printf", "%s", manifest])
    apply = shlex.join(["kubectl", "apply", where, "--filename=-"])
    patch: dict[str, Any] = {"spec": {"resourceClaims": [size.reference]}}
    for key in reversed(pod_template_path(workload.kind)):
        patch = {key: patch}
    text = msgspec.json.encode(patch).decode()
    target = f"{workload.kind.lower()}/{workload.name}"
    command = ["kubectl", "patch", target, where, "--type=strategic", f"--patch={text}"]
    return f"{create} | {apply} && {shlex.join(command)}"


def _comment(workload: MeasuredWorkload, found: Sequence[Recommendation], why: str) -> str:
    """A comment is one line: what comes from the cluster cannot begin another one."""
    mib = sum((each.size or each.current).request * each.unit.mib for each in found)
    amount = f"{mib} MiB" if mib % 1024 else f"{mib // 1024} GiB"
    what = f"{workload.kind.lower()} {workload.namespace}/{workload.name}"
    return one_line(f"# {what} is not patched: {why}; claim {amount} of GPU memory in all")
