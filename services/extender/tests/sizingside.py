"""Device plugins, histories, and a webhook that gives pods their size."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from admissioncalls import Known
from decoded import a_node, state_of
from objects import Object, pod

from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.sizing.evidence import DAY, SizingRules
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.known_histories import HistoryRead, KnownHistories
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.namespaces import CountedResources, Namespace
from gpuextender.health import Readiness
from gpuextender.sizing.namespaces import NamespaceRules
from gpuextender.sizing.sizer import PodSizer
from gpuextender.webhook import AdmissionWebhook
from gpukube.testing.plugin_pods import plugin_pod

GIB = 1 << 30
MEM = "aliyun.com/gpu-mem"
RELEASE = "gpushare"
OPT_IN = {"gpushare/sizing": "initial"}


def history(
    *used: float,
    requested: int = 8,
    limit: int = 0,
    namespace: str = "team",
    last: float = 8 * DAY,
    out_of_memory: int = 0,
) -> UsageHistory:
    """Eight days of a Deployment whose pods have one container."""
    key = WorkloadKey(namespace, "Deployment", "web", "c0")
    found = UsageHistory(key, pods=3, starts=12, out_of_memory=out_of_memory)
    for each in used:
        found.record(
            last - 8 * DAY + 1,
            int(each * GIB),
            requested_bytes=requested * GIB,
            limit_bytes=limit * GIB,
        )
    found.last_seen = found.faded_at = last
    return found


def plugin(name: str, node: str, *, namespace: str = RELEASE, scheme: str = "HTTPS") -> Object:
    """A pod of the device plugin of a node."""
    return plugin_pod(name, node, namespace=namespace, scheme=scheme)


def replied(node: str, *histories: UsageHistory) -> bytes:
    """The document of a plugin."""
    return encode_histories(node, histories)


def replica(
    *mem: int, annotations: dict[str, str] | None = None, owner: str = "web", **more: Any
) -> Object:
    """A new pod of a Deployment, as the API server sends it."""
    item = pod("", *mem or (8,), annotations=annotations or {}, **more)
    meta = item["metadata"]
    del meta["name"], meta["uid"]
    meta |= {"generateName": "web-abc-", "labels": {"pod-template-hash": "abc", **meta["labels"]}}
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{owner}-abc", "uid": "o"}
    meta["ownerReferences"] = [{**reference, "controller": True}]
    for box in item["spec"]["containers"]:
        box["resources"]["requests"] = dict(box["resources"]["limits"])
    return item


class SizingSide:
    """A webhook with what a test lets it know.

    Args:
        histories: of the last read.
        namespace: annotations of the namespace ``team``.
        whole: the last read was of all nodes.
        enabled: the webhook gives sizes at all.
        listed: the namespaces are known.
        gpus: sizes of the GPUs of the one node.
    """

    def __init__(
        self,
        *histories: UsageHistory,
        namespace: dict[str, str] | None = None,
        whole: bool = True,
        enabled: bool = True,
        listed: bool = True,
        gpus: tuple[int, ...] = (16, 40),
    ) -> None:
        self.now = 0.0
        self.rules = NamespaceRules(MEM)
        self.known = KnownHistories(900.0)
        self.known.put(HistoryRead(0.0, {each.key: each for each in histories}, whole))
        self.rules.known = lambda: listed
        self.listed({"team": namespace or {}, "other": {}})
        sizer = PodSizer(DEFAULT_NAMES, self.known, self.rules, SizingRules(), lambda: self.now)
        health = Readiness([Known()], stale_after=60)
        health.loaded = True
        self.state = state_of(a_node("n", *gpus))
        self.hook = AdmissionWebhook(
            self.state,
            health,
            profiles=SchedulerProfiles("gpushare-scheduler"),
            sizer=sizer if enabled else None,
        )

    def listed(
        self,
        namespaces: dict[str, dict[str, str]],
        quotas: Iterable[str] = (),
        limits: Iterable[str] = (),
    ) -> None:
        """All namespaces, and those with a quota or a limit of GPU memory."""
        annotations, counting, bounding = (handler for _, handler in self.rules.followed())
        annotations.on_replace([Namespace(name, each) for name, each in namespaces.items()])
        for handler, names in ((counting, quotas), (bounding, limits)):
            handler.on_replace(CountedResources(each, "q", frozenset({MEM})) for each in names)

    def answer(self, item: Object, namespace: str = "team") -> Object:
        """The response to the review of a new pod."""
        request = {"uid": "r1", "namespace": namespace, "operation": "CREATE", "object": item}
        found: Object = self.hook.review(json.dumps({"request": request}).encode())["response"]
        assert found["allowed"]
        return found

    def patches(self, item: Object, namespace: str = "team") -> list[Object]:
        """The operations on a new pod, but for the name of its scheduler."""
        patch = self.answer(item, namespace).get("patch", "")
        found: list[Object] = json.loads(base64.b64decode(patch)) if patch else []
        return [each for each in found if each["path"] != "/spec/schedulerName"]

    def created(self, item: Object, namespace: str = "team") -> Object:
        """The pod as the API server stores it."""
        found: Object = json.loads(json.dumps(item))
        for each in self.patches(item, namespace):
            _apply(found, each)
        return found

    def size(self, item: Object, namespace: str = "team") -> int:
        """Units of GPU memory of the created pod; requests and limits must be equal."""
        resources = self.created(item, namespace)["spec"]["containers"][0]["resources"]
        assert resources["limits"][MEM] == resources["requests"][MEM]
        return int(resources["limits"][MEM])


def _apply(item: Object, operation: Object) -> None:
    """Apply an operation of a JSON patch to an object with mappings and lists."""
    *parents, last = (
        part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
    )
    target: Any = item
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if operation["op"] == "remove":
        del target[last]
    else:
        assert operation["op"] == "add"
        target[last] = operation["value"]
