"""Gives a new pod the size that its workload was measured to need, as a JSON patch.

From memory alone: where anything is unknown or too old, the pod stays as it is.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpucore.accounting.node_info import NodeInfo, common_unit, gpu_sizes
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.initial_size import SizablePod, SizingConditions, initial_size, sizable_pod
from gpucore.sizing.known_histories import KnownHistories
from gpucore.sizing.share_size import ContainerSize
from gpucore.sizing.sizing_options import SizingMode, SizingOptions, sizing_options
from gpucore.wire.errors import decoded
from gpucore.wire.json_patches import ANNOTATIONS, Change, entry, set_entries
from gpucore.wire.names import MEMORY_LIMIT, ORIGINAL_MEMORY, ORIGINAL_MEMORY_LIMIT, Names
from gpucore.wire.pod.controllers import controller_of
from gpucore.wire.pod.spec import Pod
from gpuextender.sizing.namespaces import NamespaceRules

_BODY: Final = msgspec.json.Decoder(dict[str, Any])


class Resized(msgspec.Struct, frozen=True):
    """What is done with the size of a pod.

    Attributes:
        changes: JSON patch; empty leaves it.
        warning: for its author; empty is none.
    """

    changes: tuple[Change, ...] = ()
    warning: str = ""


UNCHANGED = Resized()


class PodSizer:
    """Decides about new pods.

    Args:
        namespaces: what their owners allow.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        names: Names,
        known: KnownHistories,
        namespaces: NamespaceRules,
        rules: SizingRules,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names, self._known, self._namespaces = names, known, namespaces
        self._rules, self._clock = rules, clock

    def resized(
        self, pod: Pod, raw: msgspec.Raw, namespace: str, node_infos: Collection[NodeInfo]
    ) -> Resized:
        """What to change of a pod that is about to be created.

        Args:
            namespace: of the request; the object may lack it.
            node_infos: state of all nodes; none while it is unknown.

        Raises:
            WireError: an amount is no Kubernetes quantity.
        """
        annotations = self._namespaces.annotations(namespace)
        if annotations is None:
            return UNCHANGED
        options = sizing_options(pod.annotations, annotations)
        if options.fault:
            return Resized(warning=f"{options.fault}; the pod keeps its size")
        if options.mode is not SizingMode.INITIAL or namespace in self._namespaces.limits:
            return UNCHANGED
        sizable = self._sizable(pod, raw, namespace)
        size = None if sizable is None else self._size(sizable, options, node_infos)
        if sizable is None or size is None:
            return UNCHANGED
        return Resized(tuple(_changes(raw, sizable, size, self._names)))

    def _sizable(self, pod: Pod, raw: msgspec.Raw, namespace: str) -> SizablePod | None:
        now = datetime.now(UTC).isoformat()  # the API server has not set the time of creation yet
        named = msgspec.structs.replace(pod, namespace=namespace, creation=now)
        return sizable_pod(named, controller_of(raw), self._names)

    def _size(
        self, pod: SizablePod, options: SizingOptions, node_infos: Collection[NodeInfo]
    ) -> ContainerSize | None:
        histories, whole = self._known.of(pod.key, self._clock())
        if not histories:
            return None
        unit = common_unit(node_infos)
        conditions = SizingConditions(
            unit=unit,
            gpu_sizes=() if unit is None else gpu_sizes(node_infos, unit),
            may_raise=pod.key.namespace not in self._namespaces.quotas,
            may_shrink=whole,
            rules=self._rules,
        )
        return initial_size(pod, options, histories, conditions)


def _changes(
    raw: msgspec.Raw, pod: SizablePod, size: ContainerSize, names: Names
) -> Iterator[Change]:
    """Requests and limits, which of an extended resource must be equal, and the annotations."""
    body = decoded(_BODY, raw, "no pod")
    resources = body["spec"]["containers"][pod.position]["resources"]
    path = f"/spec/containers/{pod.position}/resources"
    for kind in ("limits", "requests"):
        texts = {names.gpu_mem: str(size.request)}
        yield from set_entries(f"{path}/{kind}", resources.get(kind), texts)
    texts = {ORIGINAL_MEMORY: str(pod.current.request)}
    if pod.current.burst:
        texts |= {ORIGINAL_MEMORY_LIMIT: str(pod.current.burst), MEMORY_LIMIT: str(size.burst)}
    present: Mapping[str, str] = (body.get("metadata") or {}).get("annotations") or {}
    yield from set_entries(ANNOTATIONS, present, texts)
    if ORIGINAL_MEMORY_LIMIT in present and not pod.current.burst:
        yield {"op": "remove", "path": entry(ANNOTATIONS, ORIGINAL_MEMORY_LIMIT)}
