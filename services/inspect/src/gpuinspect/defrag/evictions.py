"""Records events about the evictions of a plan."""

from typing import TYPE_CHECKING, Final

from gpucore.defrag.planning import Eviction, EvictionPlan
from gpucore.explain.sentences import placement_sentence
from gpuinspect.eviction.requests import pod_and_controller, record
from gpukube.events import EventSource, ObjectReference

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

EVICTED: Final = "GpuPodEvicted"
MAKES_ROOM: Final = "GpuCapacityFreed"
SOURCE: Final = EventSource("gpushare-defrag", "gpushare-defrag", may_patch=False)


def announce(kube: "BlockingClient", plan: EvictionPlan, eviction: Eviction) -> None:
    """Record events on the evicted pod, its controller and the waiting pod; best effort."""
    pod, waiting = eviction.pod, plan.waiting
    same = waiting.namespace == pod.namespace
    whom = f"pod {waiting.name}" if same else "a pod of another namespace"
    text = f"evicted pod {pod.name} from node {pod.node} so that {whom} fits"
    for each in pod_and_controller(pod):
        record(kube, each, EVICTED, text, source=SOURCE)
    reference = ObjectReference("Pod", waiting.name, waiting.namespace, waiting.uid)
    room = placement_sentence(plan.placement, None)
    text = f"evicted a pod from node {plan.node} so that it fits {room}"
    record(kube, reference, MAKES_ROOM, text, source=SOURCE)
