"""Whether the webhook turns the shares that a new pod requests into a ResourceClaim.

The labels of namespaces are not read: many users may not list namespaces.
"""

from typing import Final

from gpucore.claims.convert import conversion_obstacle
from gpucore.simulate.manifests import DEFAULT_NAMESPACE
from gpucore.wire.names import API, Names
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.release import NAMESPACE_NAME, NamespaceSelector, own_webhooks
from gpuinspect.cluster.snapshots import Snapshot

CONVERTING: Final = "claims."
"""Beginning of the name of the webhook that converts pods."""
_ADVICE: Final = "evaluate the output of gpushare convert in place of this manifest"


def conversion_note(snapshot: Snapshot, pod: Pod, names: Names) -> str:
    """When the webhook converts this pod, and what to evaluate then; empty where it does not."""
    request = pod_request_of(pod, names)
    if request is None or request.gpus or conversion_obstacle(pod, request):
        return ""
    for found in own_webhooks(snapshot):
        for hook in found.webhooks or ():
            if hook.name.startswith(CONVERTING):
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
