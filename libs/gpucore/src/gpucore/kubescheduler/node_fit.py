"""kube-scheduler's own filters for one node, evaluated without its GPUs.

Evaluated: cordon and readiness, taints, nodeSelector, required node affinity, and requests (cpu,
memory, number of pods, other extended resources) against allocatable minus what is requested. Not
evaluated, but named by :attr:`~gpucore.model.constraints.PodConstraints.unsupported`:
inter-pod affinity, hard topology spread, volumes bound to nodes, host ports, resource claims.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from gpucore.model import Code, FitError
from gpucore.model.constraints import (
    CPU,
    NO_EXECUTE,
    NO_SCHEDULE,
    PODS,
    PREFER_NO_SCHEDULE,
    CandidateNode,
    PodConstraints,
    Taint,
    Toleration,
)
from gpucore.units import NodeName

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_PRESSURES: Final = tuple(f"node.kubernetes.io/{of}-pressure" for of in ("disk", "memory", "pid"))
DAEMON_TOLERATIONS: Final = (
    *(Toleration(key, "Exists", effect=NO_EXECUTE) for key in (_NOT_READY, _UNREACHABLE)),
    *(Toleration(key, "Exists", effect=NO_SCHEDULE) for key in (*_PRESSURES, _UNSCHEDULABLE)),
)
"""What the DaemonSet controller adds to its pods."""
_HARD_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
_OFTEN_MISSING: Final = frozenset({CPU, "memory", PODS, "ephemeral-storage"})
"""Kubelet always reports them; a hand-made file may lack them, and they are not checked then."""


def constraint_refusals(node: CandidateNode, pod: PodConstraints) -> Iterator[FitError]:
    """Every rule of kube-scheduler's own that keeps the pod off the node, in its order."""
    yield from _unschedulable(node, pod)
    yield from _tainted(node, pod)
    yield from _selected(node, pod)
    yield from _short(node, pod)


def daemon_pod_matches(node: CandidateNode, pod: PodConstraints) -> bool:
    """Whether the DaemonSet controller creates this pod for the node; requests do not count."""
    rules = (_unschedulable(node, pod), _tainted(node, pod), _selected(node, pod))
    return next(chain(*rules), None) is None


def pods_admitted(node: CandidateNode, pod: PodConstraints, most: int) -> int:
    """How many equal pods the node admits by these rules, at most ``most``; GPUs do not count."""
    if next(constraint_refusals(node, pod), None) is not None:
        return 0
    rooms = [most]
    if PODS in node.allocatable:
        rooms.append(node.allocatable[PODS] - node.pods)
    for name, amount in pod.requests:
        if amount and name in node.allocatable:
            rooms.append((node.allocatable[name] - node.requested.get(name, 0)) // amount)
    return min(rooms)


def avoided(node: CandidateNode, pod: PodConstraints) -> int:
    """Number of the node's PreferNoSchedule taints that the pod does not tolerate."""
    soft = (taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE)
    return sum(not _tolerated(taint, pod) for taint in soft)


def least_avoided(
    names: Sequence[NodeName], tainted: Iterable[CandidateNode], pod: PodConstraints
) -> Sequence[NodeName]:
    """The nodes with the fewest PreferNoSchedule taints that the pod does not tolerate.

    Args:
        names: of the nodes to choose from, at least one.
        tainted: the nodes that have such taints.
    """
    counts = {node.name: avoided(node, pod) for node in tainted}
    fewest = min(counts.get(name, 0) for name in names)
    return [name for name in names if counts.get(name, 0) == fewest]


def _tolerated(taint: Taint, pod: PodConstraints) -> bool:
    return any(toleration.tolerates(taint) for toleration in pod.tolerations)


def _unschedulable(node: CandidateNode, pod: PodConstraints) -> Iterator[FitError]:
    """A cordoned or unready node, by its fields where the node controller's taint is not there."""
    listed = {taint.key for taint in node.taints}
    states = (
        (node.unschedulable, {_UNSCHEDULABLE}, "the node is cordoned"),
        (not node.ready, {_NOT_READY, _UNREACHABLE}, "the node is not ready"),
    )
    for holds, keys, words in states:
        taints = [taint for taint in node.taints if taint.key in keys]
        if not listed & keys and holds:
            taints = [Taint(min(keys), effect=NO_SCHEDULE)]
        if any(t.effect in _HARD_EFFECTS and not _tolerated(t, pod) for t in taints):
            yield _refusal(node, Code.NODE_UNSCHEDULABLE, words)


_SHOWN: Final = 500
"""Characters of a constraint in a reason, which is repeated for each node."""
_OF_NODE_STATE: Final = frozenset({_UNSCHEDULABLE, _NOT_READY, _UNREACHABLE})


def _tainted(node: CandidateNode, pod: PodConstraints) -> Iterator[FitError]:
    for taint in node.taints:
        hard = taint.effect in _HARD_EFFECTS and taint.key not in _OF_NODE_STATE
        if hard and not _tolerated(taint, pod):
            yield _refusal(node, Code.TAINT_NOT_TOLERATED, f"taint {taint}")


def _selected(node: CandidateNode, pod: PodConstraints) -> Iterator[FitError]:
    lacking = [f"{k}={v}" for k, v in pod.node_selector if node.labels.get(k) != v]
    if lacking:
        yield _refusal(node, Code.NODE_AFFINITY, f"nodeSelector {', '.join(lacking)}")
    if pod.affinity is not None and not any(term.matches(node) for term in pod.affinity):
        terms = " or ".join(str(term) for term in pod.affinity if str(term)) or "no term"
        yield _refusal(node, Code.NODE_AFFINITY, f"node affinity {terms}")


def _short(node: CandidateNode, pod: PodConstraints) -> Iterator[FitError]:
    most = node.allocatable.get(PODS)
    if most is not None and node.pods >= most:
        yield _insufficient(node, PODS, 1, most - node.pods, most)
    for name, amount in pod.requests:
        offered = node.allocatable.get(name)
        if not amount or (offered is None and name in _OFTEN_MISSING):
            continue
        free = (offered or 0) - node.requested.get(name, 0)
        if amount > free:
            yield _insufficient(node, name, amount, free, offered or 0)


def _refusal(node: CandidateNode, code: Code, detail: str) -> FitError:
    shown = detail if len(detail) <= _SHOWN else f"{detail[:_SHOWN]}..."
    return FitError(node.name, code, detail=shown, unresolvable=True)


def _insufficient(node: CandidateNode, name: str, amount: int, free: int, total: int) -> FitError:
    return FitError(
        node.name,
        Code.INSUFFICIENT_RESOURCES,
        requested=amount,
        free=max(free, 0),
        total=total,
        detail=name,
        unresolvable=amount > total,
    )
