"""How pods of this cluster are scheduled: the extender's policies, and who calls the extender.

Read from what the cluster has: arguments of the extender's pods, scheduler configurations in
ConfigMaps, webhook configurations. Nothing is concluded from what cannot be read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpucore.scheduling.cluster_policy import (
    DEFAULT_POLICY,
    NO_SETS,
    ClusterPolicy,
    SchedulerProfiles,
    without_burst,
)
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.wire.names import POLICY_NAMES, TOPOLOGY_NAMES, Names
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import number
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.collect import ListRequest
from gpuinspect.cluster.extenders import EXTENDER, extenders, flags_of, mounted_sets
from gpuinspect.cluster.release import WEBHOOK_KIND, own_webhooks
from gpuinspect.cluster.snapshots import Snapshot

DEFAULT_SCHEDULER: Final = "default-scheduler"
CONFIGURATION: Final = "KubeSchedulerConfiguration"
SCHEDULER_CONFIGS: Final = ListRequest(
    "ConfigMap",
    "/api/v1/configmaps",
    {"labelSelector": "app.kubernetes.io/component in (scheduler,extender)"},
)
WEBHOOKS: Final = ListRequest(
    WEBHOOK_KIND, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
)


def policy_of(snapshot: Snapshot, override: str = "") -> ClusterPolicy:
    """The policies that the extender of this cluster is configured with.

    Args:
        snapshot: the cluster.
        override: name of a policy to use in place of the extender's; empty for none.
    """
    policies = [_policy(snapshot, pod, raw) for pod, raw in extenders(snapshot)]
    policy = policies[0] if policies else ClusterPolicy()
    others = {(p.name, p.topology) for p in policies}
    if len(others) > 1:
        policy = msgspec.structs.replace(policy, source=f"{policy.source}; extenders differ")
    if override:
        return msgspec.structs.replace(policy, name=override, source="given by --policy")
    return policy


def _policy(snapshot: Snapshot, pod: Pod, raw: msgspec.Raw) -> ClusterPolicy:
    arguments = flags_of(raw)
    name = arguments.get("policy", DEFAULT_POLICY)
    topology = arguments.get("topology-policy", BY_LINKS.policy)
    path, source = arguments.get("topology-config"), f"set on pod {pod.namespace}/{pod.name}"
    sets = mounted_sets(snapshot, raw, EXTENDER, path) if path else None
    return ClusterPolicy(
        name=name if name in POLICY_NAMES else DEFAULT_POLICY,
        topology=topology if topology in TOPOLOGY_NAMES else BY_LINKS.policy,
        source=f"{source}; {sets.source}" if sets else source,
        static=sets.static if sets else NO_SETS,
        candidates=_number(arguments.get("candidates", "")),
        percentage=_number(arguments.get("percentage-of-nodes", "")),
        profiles=_profiles(snapshot, arguments),
    )


def _profiles(snapshot: Snapshot, arguments: Mapping[str, str]) -> SchedulerProfiles:
    """The profiles by the extender's flags; without our webhook new pods get none of them."""
    burst = arguments.get("burst-scheduler", "")
    if steered(snapshot) is False:
        return SchedulerProfiles(burst=burst)
    pods = _number(arguments.get("burst-pods", ""))
    return SchedulerProfiles(arguments.get("webhook-scheduler", ""), burst, pods)


def queued_pods(snapshot: Snapshot, profiles: SchedulerProfiles, names: Names) -> int:
    """Number of pods that wait for their first try by one of these profiles."""
    return sum(
        pod.scheduler_name in profiles.names and pod_request_of(pod, names) is not None
        for pod in snapshot.pods
        if not (pod.node or pod.gated or pod.unschedulable or pod.finished or pod.terminating)
    )


def _number(text: str) -> int:
    """A setting that is absent or no number counts as 0, the choice of kube-scheduler."""
    return number(text, below=1 << 31) or 0


class _ConfigMap(msgspec.Struct):
    data: Mapping[str, str] | None = None


def configurations(snapshot: Snapshot, names: Names) -> Iterator[dict[str, Any]]:
    """Configurations of schedulers that call an extender for our resources."""
    import yaml  # noqa: PLC0415 - most questions need none

    for raw in snapshot.all("ConfigMap"):
        for text in (msgspec.json.decode(raw, type=_ConfigMap).data or {}).values():
            if CONFIGURATION not in text or names.gpu_mem not in text:
                continue
            try:
                found = yaml.safe_load(text)
            except yaml.YAMLError:
                continue
            if isinstance(found, dict):
                yield found


def scheduler_names(snapshot: Snapshot, names: Names) -> frozenset[str]:
    """Names of the schedulers that call the extender; empty unknown.

    A configuration without profiles is for the cluster's own scheduler.
    """
    found = set[str]()
    for configuration in configurations(snapshot, names):
        profiles = [p for p in configuration.get("profiles") or () if isinstance(p, dict)]
        found.update(str(p.get("schedulerName") or DEFAULT_SCHEDULER) for p in profiles)
        found |= set() if profiles else {DEFAULT_SCHEDULER}
    return frozenset(found)


def steered(snapshot: Snapshot) -> bool | None:
    """Whether our webhook names the scheduler of new pods that name none; ``None`` unknown."""
    if not snapshot.was_read(WEBHOOKS.kind):
        return None
    return any(True for _ in own_webhooks(snapshot))


class Schedulers(msgspec.Struct, frozen=True):
    """Which pods reach a scheduler that calls the extender.

    Attributes:
        names: of these schedulers; empty unknown.
        steered: our webhook names the scheduler of new pods that name none; ``None`` unknown.
    """

    names: frozenset[str] = frozenset()
    steered: bool | None = None

    def misses(self, scheduler: str, *, new: bool = False) -> str:
        """Why none of them sees a pod that names ``scheduler``; empty where one may.

        Args:
            scheduler: the name in its specification; empty for none.
            new: the pod does not exist yet, so that the webhook may still change it.
        """
        named = scheduler or DEFAULT_SCHEDULER
        if not self.names or named in self.names:
            return ""
        if new and named == DEFAULT_SCHEDULER and self.steered is not False:
            return ""
        return (
            f"no scheduler that calls the extender has the name {named}: "
            f"set spec.schedulerName to {' or '.join(without_burst(self.names))}"
        )


def schedulers_of(snapshot: Snapshot, names: Names) -> Schedulers:
    """The schedulers of a snapshot."""
    return Schedulers(scheduler_names(snapshot, names), steered(snapshot))
