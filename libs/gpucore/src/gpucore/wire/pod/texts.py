"""The annotations, labels and limits of a pod that matter here, as one hashable value.

Pods of one template have the same texts: thousands of them are decoded once. A reader is
given a pod made of nothing but these texts, so that it cannot depend on any that is left out here.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpucore.units import PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.kept import KEPT_LENGTH
from gpucore.wire.names import GANG_LABELS, Names
from gpucore.wire.pod.spec import Container, Pod

KEPT_CONTAINERS: Final = 16
"""Containers of a pod whose reading is kept."""

_Items = tuple[tuple[str, str], ...]
_Limits = tuple[tuple[_Items, str], ...]


class Texts(msgspec.Struct, frozen=True):
    """The texts of one pod that concern GPUs.

    Attributes:
        containers, init_containers: limits and restart policy of each.
    """

    annotations: _Items
    labels: _Items
    containers: _Limits
    init_containers: _Limits

    def is_short(self) -> bool:
        """Whether a reading of these texts may be kept."""
        containers = self.containers + self.init_containers
        if len(containers) > KEPT_CONTAINERS:
            return False
        limits = (item for items, _ in containers for item in items)
        texts = [text for _, text in (*self.annotations, *self.labels, *limits)]
        return sum(map(len, texts + [policy for _, policy in containers])) <= KEPT_LENGTH

    def pod(self) -> Pod:
        """A pod without a name that has these texts and nothing else."""
        return Pod(
            uid=PodUid(""),
            namespace="",
            name="",
            annotations=dict(self.annotations),
            labels=dict(self.labels),
            containers=_containers(self.containers),
            init_containers=_containers(self.init_containers),
        )


class _Keys(msgspec.Struct, frozen=True):
    """What is read of a pod, but for the time of its assignment."""

    annotations: frozenset[str]
    labels: frozenset[str]
    resources: frozenset[str]


def texts_of(pod: Pod, names: Names) -> Texts | None:
    """The texts of ``pod``; ``None`` where no container mentions a resource of ours."""
    keys = _keys(names)
    containers = _limits(pod.containers, keys.resources)
    inits = _limits(pod.init_containers, keys.resources) if pod.init_containers else ()
    if not any(limits for limits, _ in (*containers, *inits)):
        return None
    annotations = _chosen(pod.annotations, keys.annotations)
    return Texts(annotations, _chosen(pod.labels, keys.labels), containers, inits)


def _limits(containers: Sequence[Container], resources: frozenset[str]) -> _Limits:
    return tuple([(_chosen(c.limits, resources), c.restart_policy) for c in containers])


def _chosen(texts: Mapping[str, str], keys: frozenset[str]) -> _Items:
    return tuple([item for item in texts.items() if item[0] in keys]) if texts else ()


def _containers(recorded: _Limits) -> tuple[Container, ...]:
    return tuple(
        Container(limits=dict(limits), restart_policy=policy) for limits, policy in recorded
    )


@lru_cache
def _keys(names: Names) -> _Keys:
    return _Keys(
        annotations=frozenset(
            (
                *(names.mem_idx, names.mem_assigned, names.group, names.group_assigned),
                *(wire_names.V2_ALLOCATION, wire_names.V2_ASSIGNED),
                *(wire_names.V3_MEMORY, wire_names.V3_CORE_PERCENTAGE, wire_names.V3_ASSIGNED),
                *(wire_names.GPU_GROUP, wire_names.UNIT, wire_names.EXCLUSIVE, wire_names.POLICY),
                *(wire_names.ISOLATION, wire_names.TOPOLOGY, wire_names.MEMORY_LIMIT),
            )
        ),
        labels=frozenset(
            (
                names.gpu_count,
                wire_names.LABEL_REQUIRE_WHOLE,
                *(label for labels in GANG_LABELS for label in labels),
            )
        ),
        resources=frozenset((names.gpu_mem, names.gpu_core, names.gpu)),
    )
