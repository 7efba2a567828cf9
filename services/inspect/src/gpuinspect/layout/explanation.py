"""The answers of ``gpushare explain`` for people, in the manner of ``kubectl describe``.

For a pod: what it requests, where it stands, which nodes refuse it and what would help. For a
workload such as ``deploy/NAME``: its pods in groups by state and reason.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gpucore.explain.groups import Group, figures
from gpucore.explain.pod_states import Explanation, PodState
from gpucore.scheduling.cluster_policy import LEAST_EVALUATED
from gpucore.units import counted, listed
from gpuinspect.queries.scheduling_status import attempt
from gpuinspect.queries.workloads import Alike, WorkloadRef
from gpuinspect.terminal.output import align, align_rows, one_line, wrapped

SHOWN: Final = 3  # names of nodes in a row; the rest are counted
HEAD: Final = len("Scheduler:  ")
"""Where the second column of the head begins."""

_LEAVING: Final = "; terminating, it counts until its containers are gone"


def explanation(found: Explanation, *, wide: bool = False, width: int | None = None) -> str:
    """Blocks with the pod's request, its state, the nodes that refuse it, and suggestions.

    Args:
        wide: name every node instead of counting them.
        width: of the terminal, for sentences; ``None`` does not wrap.
    """
    head = align_rows(_head(found)).splitlines()
    return "".join(
        [
            *(wrapped(line, width, indent=HEAD) for line in head),
            *_refusals(found, wide=wide),
            *_sentences(found, width),
        ]
    )


def _head(found: Explanation) -> Iterator[tuple[str, str]]:
    pod = found.pod
    yield "Pod:", f"{pod.namespace}/{pod.name}"
    yield "Requests:", found.request_summary or "-"
    yield "State:", f"{found.state}{_LEAVING if pod.terminating else ''}"
    if found.where:
        yield "Where:", found.where
    for line in found.neighbours:
        yield "", line
    if found.why:
        yield "Why:", found.why
    if found.pod_request is not None:
        yield "Policy:", str(found.policy)
    yield "Scheduler:", f"{pod.scheduler_name or '-'}{_profile(found)}, {attempt(found)}"
    if not pod.node and found.scheduler_record.last_message:
        yield "", f"message: {one_line(found.scheduler_record.last_message)}"
    for fault in found.faults:
        yield "Fault:", fault


def _sentences(found: Explanation, width: int | None) -> Iterator[str]:
    nearest = [group.example for group in found.groups if group.largest]
    if nearest:
        yield "\n"
        yield from (wrapped(f"Nearest: {sentence}", width, indent=9) for sentence in nearest)
    if found.helps:
        yield "\nWhat would help:\n"
        yield from (wrapped(f"  - {sentence}", width, indent=4) for sentence in found.helps)


def _profile(found: Explanation) -> str:
    burst = found.policy.profiles.burst
    if not burst or found.pod.scheduler_name != burst:
        return ""
    return f" (burst profile: compares {LEAST_EVALUATED} nodes)"


_GANG: Final = frozenset({PodState.GANG_WAITS, PodState.GANG_INCOMPLETE})


def _refusals(found: Explanation, *, wide: bool) -> Iterator[str]:
    if found.fits:
        fits = "Alone it fits" if found.state in _GANG else "It fits"
        yield f"\n{fits} on {counted(len(found.fits), 'node')}: {_names(found.fits, wide=wide)}\n"
    if found.groups:
        count = sum(len(group.nodes) for group in found.groups)
        yield f"\nRefused by {counted(count, 'node')}:\n"
        rows = (_group(group, wide=wide) for group in found.groups)
        yield align_rows([("NODES", "REASON", "FIGURES", "WHICH"), *rows])


def _group(group: Group, *, wide: bool) -> tuple[str, ...]:
    names = _names(group.nodes, wide=wide)
    return (str(len(group.nodes)), str(group.code), figures(group), names)


def _names(names: Sequence[str], *, wide: bool, most: int = SHOWN) -> str:
    return listed(names, len(names) if wide else most)


SHOWN_PODS: Final = 5  # names of pods in a row; the rest are counted
_WORKLOAD_HEAD: Final = len("Controller:  ")


def workload(
    ref: WorkloadRef,
    groups: Sequence[Alike],
    *,
    not_created: str = "",
    wide: bool = False,
    width: int | None = None,
) -> str:
    """A head with the counts, then a block for each group.

    Args:
        groups: those that wait first.
        not_created: why its controller could not create pods; empty for none.
        wide: name every pod instead of counting them.
        width: of the terminal, for sentences; ``None`` does not wrap.
    """
    head = align("".join(_workload_head(ref, groups, one_line(not_created)))).splitlines()
    parts = [wrapped(line, width, indent=_WORKLOAD_HEAD) for line in head]
    for group in groups:
        parts += ["\n", *_block(group, wide=wide, width=width)]
    return "".join(parts)


def _workload_head(ref: WorkloadRef, groups: Sequence[Alike], not_created: str) -> Iterator[str]:
    count = sum(len(group.pods) for group in groups)
    pending = sum(len(group.pods) for group in groups if group.pods[0].waits)
    yield f"Workload:\t{ref}\n"
    verb = "is" if pending == 1 else "are"
    yield f"Pods:\t{count} with GPU requests, of which {pending} {verb} pending\n"
    if not_created:
        yield f"Controller:\tcould not create a pod: {not_created}\n"


def _block(group: Alike, *, wide: bool, width: int | None) -> Iterator[str]:
    first = group.pods[0]
    yield wrapped(f"{counted(len(group.pods), 'pod')} {group.state.value}", width, indent=2)
    names = _names([each.pod.name for each in group.pods], wide=wide, most=SHOWN_PODS)
    yield wrapped(f"  Pods:      {names}", width, indent=13)
    yield wrapped(f"  Requests:  {first.found.request_summary}", width, indent=13)
    if group.reason:
        yield wrapped(f"  Reason:    {one_line(group.reason)}", width, indent=13)
    if first.waits and first.found.helps:
        yield "  What would help:\n"
        yield from (wrapped(f"    - {each}", width, indent=6) for each in first.found.helps)
