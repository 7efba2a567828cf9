"""What-if: reads the pods of a manifest, and places them on a copy of a snapshot."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from gpucore.accounting.ledger import Ledger
from gpucore.claims.convert import conversion_obstacle
from gpucore.explain.answers import Answer, answers, notes_of, with_added
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.pending_pods import nominations_of
from gpucore.simulate.manifests import DEFAULT_NAMESPACE, RefusedPodError, WorkloadPods, wanted_pods
from gpucore.simulate.questions import check_nodes, pods_on_nodes, whatif_pods_of
from gpucore.simulate.whatif import WhatIfPod
from gpucore.steps import complete
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.names import API, Names
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.claims import claim_specs
from gpuinspect.cluster.mix import UNPUBLISHED, saved_mix
from gpuinspect.cluster.release import NAMESPACE_NAME, NamespaceSelector, own_webhooks
from gpuinspect.cluster.schedulers import queued_pods, schedulers_of
from gpuinspect.cluster.snapshots import Snapshot, content
from gpuinspect.errors import InspectError, MissingObjectError

FRAGMENTATION: Final = "fragmentation"
"""Policy that goes by the mix of pods."""
_CONVERTING: Final = "claims."
"""Beginning of the name of the webhook that converts pods."""
_ADVICE: Final = "evaluate the output of gpushare convert in place of this manifest"


class ManifestError(InspectError):
    """The file has no pod to place."""


def read_manifest(path: Path, names: Names) -> list[WorkloadPods]:
    """The pods of a file, or of standard input for ``-``.

    Args:
        names: of the resources, whose amounts must be such as the API server takes.

    Raises:
        ManifestError: it cannot be read, is no YAML, holds no pod, or one that cannot be created.
    """
    try:
        text = content(path).decode()
        found = wanted_pods(yaml.safe_load_all(text), names)
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {error.strerror}") from error
    except RefusedPodError as error:
        raise ManifestError(str(error)) from error
    except (yaml.YAMLError, WireError, ValueError) as error:
        raise ManifestError(f"{path} is not a manifest of pods: {error}") from error
    if not found:
        raise ManifestError(f"{path} contains no Pod and no object with a pod template")
    return found


class Addition(msgspec.Struct, frozen=True):
    """Empty nodes to add: ``count`` of them, made like the node ``like``."""

    count: int = 0
    like: str = ""


def whatif_answers(
    snapshot: Snapshot,
    wanted: Sequence[WorkloadPods],
    ledger: Ledger,
    *,
    addition: Addition,
    policy: ClusterPolicy,
    nodes: Candidates | None = None,
    taken: Callable[[Sequence[WhatIfPod]], Iterable[WhatIfPod]] = iter,
) -> list[Answer]:
    """The results of the wanted pods, in order.

    Args:
        ledger: of the cluster; it is not changed.
        policy: what holds where neither pod nor node names a policy.
        nodes: the candidate nodes of the same snapshot, where they were computed before.
        taken: gives the pods one after the other, and may show how many were placed.

    Raises:
        MissingObjectError: there is no node to make the additional ones like.
        ManifestError: a pod requests no GPU, or names a node that does not exist.
    """
    found = nodes or candidates(snapshot, ledger)
    if addition.count:
        if NodeName(addition.like) not in found.nodes:
            raise MissingObjectError(f'nodes "{addition.like}" not found')
        found = with_added(found, count=addition.count, like=NodeName(addition.like))
    try:
        known = claim_specs(snapshot)
        whatif_pods = [
            whatif_pod
            for each in wanted
            for whatif_pod in pods_on_nodes(
                each, whatif_pods_of(each, ledger.names, known), found.nodes.values()
            )
        ]
        check_nodes(whatif_pods, found.nodes)
    except WireError as error:
        raise ManifestError(str(error)) from error
    queued = queued_pods(snapshot, policy.profiles, ledger.names)
    nominations = nominations_of(snapshot.pods, ledger.names)
    return complete(
        answers(found, taken(whatif_pods), policy, queued=queued, nominations=nominations)
    )


def mix_remarks(
    snapshot: Snapshot, wanted: Iterable[WorkloadPods], ledger: Ledger, policy: ClusterPolicy
) -> Iterator[str]:
    """A sentence where a pod may be placed by a mix that is not the extender's."""
    policies = {policy.name, *(info.shape.policy for info in ledger.nodes().values())}
    requests = (pod_request_of(each.pod, ledger.names) for each in wanted)
    policies |= {request.policy for request in requests if request is not None}
    if FRAGMENTATION in policies and saved_mix(snapshot, time.time()).unpublished:
        yield UNPUBLISHED


def remarks(snapshot: Snapshot, wanted: Iterable[WorkloadPods], names: Names) -> Iterator[str]:
    """Sentences about each pod that the result does not decide."""
    schedulers = schedulers_of(snapshot, names)
    nominations = nominations_of(snapshot.pods, names)
    for each in wanted:
        unseen = schedulers.misses(each.pod.scheduler_name, new=True)
        if unseen:
            yield f"{each.pod.name}: {unseen}"
        elif converted := _conversion_note(snapshot, each.pod, names):
            yield f"{each.pod.name}: {converted}"
        yield from notes_of(each, names, nominations)


def _conversion_note(snapshot: Snapshot, pod: Pod, names: Names) -> str:
    """When the webhook converts this pod, and what to evaluate then; empty where it does not.

    The labels of namespaces are not read: many users may not list namespaces.
    """
    request = pod_request_of(pod, names)
    if request is None or request.gpus or conversion_obstacle(pod, request):
        return ""
    for found in own_webhooks(snapshot):
        for hook in found.webhooks or ():
            if hook.name.startswith(_CONVERTING):
                return _note(hook.namespace_selector, pod.namespace or DEFAULT_NAMESPACE)
    return ""


def _note(selector: NamespaceSelector, namespace: str) -> str:
    rules = {
        (each.key, each.operator): each.values or () for each in selector.match_expressions or ()
    }
    if namespace in rules.get((NAMESPACE_NAME, "NotIn"), ()):
        return ""
    condition = f"unless namespace {namespace} has the label {API}=devices"
    if (API, "In") in rules:
        condition = f"if namespace {namespace} has the label {API}=claims"
    claim = "the webhook turns its request into a ResourceClaim, which is not evaluated"
    return f"{condition}, {claim}: {_ADVICE}"
