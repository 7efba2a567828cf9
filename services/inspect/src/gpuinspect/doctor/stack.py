"""Checks of our own pods: the plugins, the extender, and how the scheduler calls it."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from gpucore.accounting.claim_offers import only_claims_exclusive
from gpucore.scheduling.cluster_policy import without_burst
from gpuinspect.cluster.release import own_webhooks
from gpuinspect.cluster.schedulers import (
    CONFIGURATION,
    CalledExtender,
    configurations,
    scheduler_names,
    schedulers_of,
)
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called
from gpuinspect.doctor.rawobjects import NamedObject

check = Checklist()
RESTARTS: Final = 5
_VERSION: Final = "app.kubernetes.io/version"


@check(
    "plugin-runs",
    Level.FAIL,
    "a ready device plugin runs on every labelled node",
    do="kubectl describe the pod: image, runtime class, NVML; where there is none the DaemonSet, "
    "whose events have the reason: Pod Security, taints; where the node is not ready, see to it "
    "first",
)
def _plugin(evidence: Evidence) -> Iterator[str]:
    pods = {pod.node: pod for pod in evidence.plugins}
    ready = {pod.node for pod in evidence.plugins if evidence.facts(pod).ready}
    for node in evidence.labelled:
        pod = pods.get(node.name)
        if pod is None:
            yield f"{node.name} has no pod of the plugin"
        elif node.name not in ready:
            why = "" if node.ready else ", as its node is not"
            yield f"{called(pod)} on {node.name} is not ready{why}"


@check(
    "one-plugin",
    Level.FAIL,
    "no node runs two gpushare device plugins",
    do="remove the older installation",
)
def _twice(evidence: Evidence) -> Iterator[str]:
    counts = Counter(pod.node for pod in evidence.plugins if not pod.terminating)
    yield from (f"{node} has {n}" for node, n in counts.items() if n > 1 and node)


@check(
    "no-foreign-plugin",
    Level.WARN,
    "NVIDIA's device plugin does not run on gpushare nodes",
    do="gpushare hold-nvidia-plugin --apply; both plugins would allocate the same GPUs",
)
def _foreign(evidence: Evidence) -> Iterator[str]:
    ours = {node.name for node in evidence.labelled}
    for pod in evidence.snapshot.pods:
        if pod.finished:
            continue
        names = (pod.name, *pod.labels.values())
        named = pod.node in ours and any("nvidia-device-plugin" in name for name in names)
        if named and evidence.serves_kubelet(pod):
            yield f"{called(pod)} on {pod.node}"


@check(
    "extender-ready",
    Level.FAIL,
    "a scheduler extender is ready",
    do="kubectl describe its pod, or install the chart where there is none; without it pods with "
    "GPU requests stay pending or are placed without regard to GPUs",
)
def _extender(evidence: Evidence) -> Iterator[str]:
    if not evidence.extenders:
        yield "no extender pod was found"
    elif not any(evidence.facts(pod).ready for pod in evidence.extenders):
        yield from (f"{called(pod)} is not ready" for pod in evidence.extenders)


@check(
    "extender-replicas",
    Level.WARN,
    "a second scheduler extender is ready",
    do="kubectl describe the pod that is not ready; where there is one pod only, set "
    "scheduler.replicas to 2",
)
def _replicas(evidence: Evidence) -> Iterator[str]:
    ready = [pod for pod in evidence.extenders if evidence.facts(pod).ready]
    if len(ready) == 1:
        others = [called(pod) for pod in evidence.extenders if pod not in ready]
        not_ready = f"; not ready: {', '.join(others)}" if others else ""
        yield f"only {called(ready[0])} is ready{not_ready}"


@check(
    "few-restarts",
    Level.WARN,
    "gpushare pods do not restart repeatedly",
    do="read the log of the previous container: kubectl logs --previous; for OOMKilled raise "
    "resources.limits.memory of the component",
)
def _restarts(evidence: Evidence) -> Iterator[str]:
    for pod in (*evidence.plugins, *evidence.extenders, *evidence.webhooks):
        restarts = evidence.facts(pod).restarts
        if restarts > RESTARTS:
            ends = evidence.facts(pod).last_ends
            yield f"{called(pod)} has restarted {restarts} times" + (f" ({ends})" if ends else "")


@check(
    "one-version",
    Level.WARN,
    "gpushare pods have one version",
    do="finish the upgrade: run helm upgrade, then check that all pods were replaced",
)
def _version(evidence: Evidence) -> Iterator[str]:
    pods = (*evidence.plugins, *evidence.extenders)
    versions = {pod.labels[_VERSION] for pod in pods if _VERSION in pod.labels}
    if len(versions) > 1:
        yield "versions " + ", ".join(sorted(versions))


@check(
    "runtime-class",
    Level.FAIL,
    "the plugin's runtime class exists",
    do="create the RuntimeClass, or set devicePlugin.runtimeClassName to an empty string",
    needs=("RuntimeClass",),
)
def _runtime_class(evidence: Evidence) -> Iterator[str]:
    raws = evidence.snapshot.all("RuntimeClass")
    known = {msgspec.json.decode(raw, type=NamedObject).metadata.name for raw in raws}
    wanted = {evidence.facts(pod).runtime_class for pod in evidence.plugins} - {""}
    yield from (f"{name} does not exist" for name in sorted(wanted - known))


@check(
    "webhook-trusted",
    Level.FAIL,
    "the API server can verify the webhook's certificate",
    do="run helm upgrade, or kubectl create job -n gpushare --from=cronjob/gpushare-certificates "
    "certificates-now; both set the caBundle of a certificate that the chart issues",
    needs=("MutatingWebhookConfiguration",),
)
def _webhook(evidence: Evidence) -> Iterator[str]:
    for found in own_webhooks(evidence.snapshot):
        for hook in found.webhooks or ():
            if not hook.client_config.ca_bundle:
                yield f"{found.metadata.name}: {hook.name} has no caBundle"


@check(
    "webhook-ready",
    Level.FAIL,
    "a pod of the webhook is ready",
    do="kubectl describe its pod, or the Deployment where there is none; until one is ready, pods "
    "that name no scheduler get none, or cannot be created with failurePolicy Fail",
    needs=("MutatingWebhookConfiguration",),
)
def _webhook_ready(evidence: Evidence) -> Iterator[str]:
    if not any(True for _ in own_webhooks(evidence.snapshot)):
        return
    if not evidence.webhooks:
        yield "the webhook is configured, and no pod of it was found"
    elif not any(evidence.facts(pod).ready for pod in evidence.webhooks):
        yield from (f"{called(pod)} is not ready" for pod in evidence.webhooks)


@check(
    "webhook-lenient",
    Level.WARN,
    "pods can be created while the webhook is down",
    do="set its failurePolicy to Ignore",
    needs=("MutatingWebhookConfiguration",),
)
def _lenient(evidence: Evidence) -> Iterator[str]:
    for found in own_webhooks(evidence.snapshot):
        for hook in found.webhooks or ():
            if hook.failure_policy == "Fail":
                yield f"{found.metadata.name}: {hook.name} has failurePolicy Fail"


@check(
    "scheduler-configured",
    Level.FAIL,
    "a scheduler calls the extender for all gpushare resources",
    do="run helm upgrade; in mode extender check the configuration of the scheduler",
    needs=("ConfigMap",),
)
def _configured(evidence: Evidence) -> Iterator[str]:
    found = list(configurations(evidence.snapshot, evidence.names))
    if not found:
        yield f"no {CONFIGURATION} that names {evidence.names.gpu_mem} was found"
    extenders = [extender for each in found for extender in each.extenders or ()]
    ours = [each for each in extenders if _managed(each).intersection(_resources(evidence))]
    if extenders and not ours and all(map(_managed, extenders)):
        yield f"no extender is called for {evidence.names.gpu_mem}"
    for extender in ours:
        yield from _lacking(extender, evidence)


def _managed(extender: CalledExtender) -> set[str]:
    """The resources for whose pods it is called; none for those of all pods."""
    return {each.name for each in extender.managed_resources or ()}


def _resources(evidence: Evidence) -> tuple[str, ...]:
    return (evidence.names.gpu_mem, evidence.names.gpu_core, evidence.names.gpu)


def _lacking(extender: CalledExtender, evidence: Evidence) -> Iterator[str]:
    called_by = {"filterVerb": extender.filter_verb, "bindVerb": extender.bind_verb}
    verbs = [verb for verb, path in called_by.items() if not path]
    missing = [name for name in _resources(evidence) if name not in _managed(extender)]
    yield from (f"the extender is called without {verb}" for verb in verbs)
    yield from (f"the extender is not called for {name}" for name in missing)
    if extender.ignorable:
        yield "the extender is ignorable: while it is down, pods are placed without regard to GPUs"


@check(
    "scheduler-named",
    Level.FAIL,
    "pending pods name a scheduler that calls the extender",
    do="set spec.schedulerName to a configured scheduler, or, for pods that name none, enable the "
    "webhook",
    needs=("ConfigMap",),
)
def _named(evidence: Evidence) -> Iterator[str]:
    known = scheduler_names(evidence.snapshot, evidence.names)
    by_claims = only_claims_exclusive(evidence.node_infos.values())
    for pod, pod_request in evidence.waiting:
        if pod_request.gpus and by_claims:
            continue
        if known and pod.scheduler_name not in known:
            yield f"{called(pod)} names {pod.scheduler_name}, not {', '.join(without_burst(known))}"


@check(
    "scheduled-by-us",
    Level.WARN,
    "running pods with shares were placed by a scheduler that calls the extender",
    do="set spec.schedulerName in the pod's template, or enable the webhook; then "
    "create the pod again",
    needs=("ConfigMap",),
)
def _placed_by_others(evidence: Evidence) -> Iterator[str]:
    schedulers = schedulers_of(evidence.snapshot, evidence.names)
    for pod, _ in evidence.pod_requests:
        allocation = evidence.ledger.allocation(pod.uid)
        if not pod.node or (allocation is not None and evidence.by_claim(allocation)):
            continue
        if unseen := schedulers.misses(pod.scheduler_name):
            yield f"{called(pod)} on {pod.node}: {unseen}"
