"""How pods of this cluster are scheduled: the extender's policies, and who calls the extender.

Read from what the cluster has: arguments of the extender's pods, scheduler configurations in
ConfigMaps, webhook configurations. Nothing is concluded from what cannot be read.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpucore.scheduling.cluster_policy import (
    DEFAULT_POLICY,
    NO_SETS,
    ClusterPolicy,
    SchedulerProfiles,
    without_burst,
)
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.scheduling.pending_pods import awaits_first_try
from gpucore.wire.configmaps import ConfigMap, decode_config_map
from gpucore.wire.names import (
    POLICY_NAMES,
    TOPOLOGY_NAMES,
    UNHEALTHY_NAMESPACE,
    UNHEALTHY_PREFIX,
    Names,
)
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import number
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import CONFIG_MAPS, COUNTED, ListRequest
from gpuinspect.cluster.extenders import (
    EXTENDER,
    extender_namespaces,
    extenders,
    extenders_down,
    flags_of,
    mounted_sets,
    reads_config_maps,
)
from gpuinspect.cluster.ledger import withdrawn_gpus
from gpuinspect.cluster.release import WEBHOOK_KIND, own_webhooks
from gpuinspect.cluster.scoped import gaps
from gpuinspect.cluster.snapshots import Snapshot
from gpukube.plugin_pods import COMPONENT

DEFAULT_SCHEDULER: Final = "default-scheduler"
CONFIGURATION: Final = "KubeSchedulerConfiguration"
_MOST_CHARACTERS: Final = 64 << 10
"""A longer text is no configuration: it takes seconds to parse."""
SCHEDULER_CONFIGS: Final = ListRequest(
    "ConfigMap",
    "/api/v1/configmaps",
    {"labelSelector": "app.kubernetes.io/component in (scheduler,extender)"},
)
WEBHOOKS: Final = ListRequest(
    WEBHOOK_KIND, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
)


def placing_lists(namespace: str = "") -> tuple[ListRequest, ...]:
    """Lists besides nodes and pods by which pods are placed.

    Args:
        namespace: whose claim templates are read; empty for all.
    """
    claims = (DEVICE_CLASSES, claim_templates(namespace))
    return (*COUNTED, *claims, SCHEDULER_CONFIGS, WEBHOOKS)


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
    sets = mounted_sets(snapshot, pod, raw, path) if path else None
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


def unread_health(snapshot: Snapshot) -> str:
    """That GPUs may be withdrawn which seem healthy here; empty where it is known."""
    read = CONFIG_MAPS.path not in snapshot.unread
    if read or not any(reads_config_maps(raw) for _, raw in extenders(snapshot)):
        return ""
    return (
        "unhealthy GPUs are unknown: the extender reads them from the ConfigMaps of namespace"
        f" {UNHEALTHY_NAMESPACE}, which cannot be listed"
    )


def _unused_health(snapshot: Snapshot) -> str:
    """That the extender places pods on GPUs that count as unhealthy here; empty where it does not.

    By ConfigMaps that it does not read, such as those of another program.
    """
    read = [reads_config_maps(raw) for _, raw in extenders(snapshot)]
    nodes = [name for name, gpus in withdrawn_gpus(snapshot).items() if gpus]
    if not read or any(read) or not nodes:
        return ""
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return (
        f"GPUs of ConfigMap {UNHEALTHY_PREFIX}{nodes[0]}{more} count as unhealthy here, but the"
        " extender places pods on them: it reads these ConfigMaps with the chart value"
        " unhealthyConfigMaps=true"
    )


def placing_gaps(snapshot: Snapshot, follows: Mapping[str, str]) -> Iterator[str]:
    """What could not be read of what decides where pods are placed; ``follows`` as of ``gaps``."""
    yield from gaps(snapshot, follows)
    yield from filter(None, (unread_health(snapshot), _unused_health(snapshot)))


def queued_pods(snapshot: Snapshot, profiles: SchedulerProfiles, names: Names) -> int:
    """Number of pods that wait for their first try by one of these profiles."""
    return sum(
        pod.scheduler_name in profiles.names and pod_request_of(pod, names) is not None
        for pod in snapshot.pods
        if awaits_first_try(pod) and not (pod.node or pod.finished or pod.terminating)
    )


def _number(text: str) -> int:
    """A setting that is absent or no number counts as 0, the choice of kube-scheduler."""
    return number(text, below=1 << 31) or 0


class _Profile(msgspec.Struct, rename="camel"):
    scheduler_name: str | None = None


class ManagedResource(msgspec.Struct):
    """A resource for whose pods a scheduler calls an extender."""

    name: str = ""


class CalledExtender(msgspec.Struct, rename="camel"):
    """How a scheduler calls an extender."""

    filter_verb: str | None = None
    bind_verb: str | None = None
    ignorable: bool | None = None
    managed_resources: list[ManagedResource] | None = None


class SchedulerConfiguration(msgspec.Struct):
    """The part of a KubeSchedulerConfiguration that is read here."""

    profiles: list[_Profile] | None = None
    extenders: list[CalledExtender] | None = None


def configurations(snapshot: Snapshot, names: Names) -> Iterator[SchedulerConfiguration]:
    """Configurations of schedulers that call an extender for our resources.

    They are read where the extenders run, and in kube-system: a ConfigMap of any other namespace
    may be one of a tenant.
    """
    for each in _config_maps(snapshot):
        yield from _configurations_of(each, names)


def for_kube_scheduler(snapshot: Snapshot, names: Names) -> bool:
    """Whether the cluster's own kube-scheduler is to call the extender: mode ``extender``."""
    return any(
        True
        for each in _config_maps(snapshot)
        if each.labels.get(COMPONENT) == EXTENDER
        for _ in _configurations_of(each, names)
    )


def _config_maps(snapshot: Snapshot) -> Iterator[ConfigMap]:
    maps = [decode_config_map(raw) for raw in snapshot.all("ConfigMap")]
    namespaces = extender_namespaces(snapshot) if maps else ()
    return (each for each in maps if each.namespace in namespaces)


def _configurations_of(found: ConfigMap, names: Names) -> Iterator[SchedulerConfiguration]:
    for text in found.data.values():
        if CONFIGURATION in text and names.gpu_mem in text and len(text) <= _MOST_CHARACTERS:
            configuration = _configuration(text)
            if configuration is not None:
                yield configuration


def _configuration(text: str) -> SchedulerConfiguration | None:
    """The configuration in a text; ``None`` where it is none. Dates and tags fail in many ways."""
    import yaml  # noqa: PLC0415 - most questions need none

    broken = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
    try:
        return msgspec.convert(yaml.safe_load(text), SchedulerConfiguration)
    except (*broken, RecursionError):
        return None


def scheduler_names(snapshot: Snapshot, names: Names) -> frozenset[str]:
    """Names of the schedulers that call the extender; empty unknown.

    A configuration without profiles is for the cluster's own scheduler.
    """
    found = set[str]()
    for configuration in configurations(snapshot, names):
        profiles = configuration.profiles or [_Profile()]
        found.update(each.scheduler_name or DEFAULT_SCHEDULER for each in profiles)
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
        down: the pods of the extender, where none of them is ready.
    """

    names: frozenset[str] = frozenset()
    steered: bool | None = None
    down: tuple[str, ...] = ()

    def keeps_waiting(self, scheduler: str) -> str:
        """Why a pod that names ``scheduler`` waits wherever it fits; empty for no such reason."""
        if unseen := self.misses(scheduler):
            return unseen
        if not self.down:
            return ""
        return (
            f"no extender is ready ({', '.join(self.down)}): until one is, no pod that requests "
            "GPUs is placed; see 'gpushare doctor'"
        )

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
    return Schedulers(scheduler_names(snapshot, names), steered(snapshot), extenders_down(snapshot))
