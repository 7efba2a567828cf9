"""``gpushare recommend -o patch``: one ``kubectl patch`` command for each workload.

The lines are a shell script: read them, then pipe them to ``sh``. Everything that comes from the
cluster is quoted. What no patch can change is a comment.

The API server refuses every change of the spec of a ResourceClaimTemplate. So for claimed memory a
command creates a template with the new size and another name, and if that succeeds, a second one
refers to it from the workload, which starts a rollout. The old template stays: pods that run still
name it.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gpucore.sizing.recommendation import Recommendation, SizingAdvice
from gpucore.sizing.usage_history import ALL_CONTAINERS
from gpucore.wire.names import MEMORY_LIMIT, Names
from gpuinspect.queries.claim_sizes import (
    POD_TEMPLATES,
    ClaimSize,
    MeasuredWorkload,
    object_names,
)
from gpuinspect.terminal.output import one_line, plain_json

NOT_READ: Final = "its claims are not read from a file or a snapshot"


def patches(
    found: Sequence[Recommendation],
    names: Names,
    claims: Mapping[MeasuredWorkload, ClaimSize | str] = MappingProxyType({}),
) -> Iterator[str]:
    """Lines of a shell script; workloads whose sizes are right have none.

    Args:
        found: the recommendations.
        names: of the resources.
        claims: of the workloads whose memory is claimed, what to change, or why nothing can be.
    """
    ordered = sorted(found, key=lambda each: each.key)
    for workload, group in groupby(ordered, _workload):
        containers = list(group)
        if not any(_changes(each) for each in containers):
            continue
        if any(each.claims for each in containers):
            yield claim_line(workload, containers, claims.get(workload, NOT_READ))
        elif _patchable(workload) and not any(_by_hand(each) for each in containers):
            yield _command(workload, patch(containers, names))
        else:
            yield _comment(workload, containers, names)


def patch(containers: Sequence[Recommendation], names: Names) -> dict[str, Any]:
    """The strategic merge patch of one workload."""
    template: dict[str, Any] = {
        "spec": {"containers": [_resources(each, names) for each in containers if _changes(each)]}
    }
    limit = _memory_limit(containers)
    if limit or any(each.current.burst for each in containers):
        template["metadata"] = {"annotations": {MEMORY_LIMIT: limit or None}}
    return _of_workload(containers[0].key.kind, template)


def _of_workload(kind: str, template: dict[str, Any]) -> dict[str, Any]:
    """The patch of a workload whose template of pods is patched so."""
    for key in reversed(POD_TEMPLATES[kind]):
        template = {key: template}
    return template


def _workload(found: Recommendation) -> MeasuredWorkload:
    return MeasuredWorkload(found.key.kind, found.key.namespace, found.key.name)


def _changes(found: Recommendation) -> bool:
    return found.advice in {SizingAdvice.RAISE, SizingAdvice.SHRINK}


def _patchable(workload: MeasuredWorkload) -> bool:
    """The API server does not validate the name of a pod's owner; such a name gets no command."""
    return workload.kind in POD_TEMPLATES and object_names(workload.namespace, workload.name)


def _by_hand(found: Recommendation) -> bool:
    """A patch cannot split the memory of several containers, or replace an exclusive GPU."""
    return found.key.container == ALL_CONTAINERS or found.whole_gpu


def _resources(found: Recommendation, names: Names) -> dict[str, Any]:
    """Request and limit: the API server refuses extended resources for which they differ."""
    amount = {names.gpu_mem: str((found.size or found.current).request)}
    return {"name": found.key.container, "resources": {"limits": amount, "requests": amount}}


def _memory_limit(containers: Sequence[Recommendation]) -> str:
    """Units of all containers together, as the annotation counts them; empty for no burst."""
    sizes = [each.size or each.current for each in containers]
    limit = sum(size.limit for size in sizes)
    return str(limit) if limit > sum(size.request for size in sizes) else ""


def _command(workload: MeasuredWorkload, body: Mapping[str, Any]) -> str:
    text = plain_json(msgspec.json.encode(body).decode())
    target = f"{workload.kind.lower()}/{workload.name}"
    where = f"--namespace={workload.namespace}"
    return shlex.join(["kubectl", "patch", target, where, "--type=strategic", f"--patch={text}"])


def _comment(workload: MeasuredWorkload, containers: Sequence[Recommendation], names: Names) -> str:
    """A comment is one line: what comes from the cluster cannot begin another one."""
    sizes = ", ".join(_amount(each, names) for each in containers)
    limit = _memory_limit(containers)
    burst = f", annotation {MEMORY_LIMIT}={limit}" if limit else ""
    what = f"{workload.kind.lower()} {workload.namespace}/{workload.name}"
    whole = " (it may have an exclusive GPU)" if any(e.whole_gpu for e in containers) else ""
    return one_line(f"# {what} is not patched{whole}; set in its manifest: {sizes}{burst}")


def _amount(found: Recommendation, names: Names) -> str:
    container = found.key.container or "all containers"
    return f"{container} {names.gpu_mem}={(found.size or found.current).request}"


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
    if isinstance(size, str):
        return _claim_comment(workload, found, size)
    return _claim_commands(workload, size)


def _claim_commands(workload: MeasuredWorkload, size: ClaimSize) -> str:
    """One line: the new template, and if it exists, the reference to it."""
    where = f"--namespace={workload.namespace}"
    manifest = plain_json(msgspec.json.encode(size.template).decode())
    create = shlex.join(["printf", "%s", manifest])
    apply = shlex.join(["kubectl", "apply", where, "--filename=-"])
    refer = _of_workload(workload.kind, {"spec": {"resourceClaims": [size.reference]}})
    return f"{create} | {apply} && {_command(workload, refer)}"


def _claim_comment(workload: MeasuredWorkload, found: Sequence[Recommendation], why: str) -> str:
    """A comment is one line: what comes from the cluster cannot begin another one."""
    mib = sum((each.size or each.current).request * each.unit.mib for each in found)
    amount = f"{mib} MiB" if mib % 1024 else f"{mib // 1024} GiB"
    what = f"{workload.kind.lower()} {workload.namespace}/{workload.name}"
    return one_line(f"# {what} is not patched: {why}; claim {amount} of GPU memory in all")
