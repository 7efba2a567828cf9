"""The writes of a run: the notice on a pod, its eviction, and events about both."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gpucore.sizing.idle_eviction import IdleNotice, MeasuredPod, notice_text
from gpucore.wire.json_patches import ANNOTATIONS, Change, set_entries
from gpucore.wire.names import IDLE_ALLOWED, IDLE_NOTICE
from gpuinspect.eviction.requests import evict, pod_and_controller, record
from gpukube.events import EventSource, event_body, event_path

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

NOTICED: Final = "GpuIdleNotice"
EVICTED: Final = "GpuIdlePodEvicted"
SOURCE: Final = EventSource("gpushare-idle", "gpushare-idle", may_patch=False)


def give_notice(
    kube: "BlockingClient", pod: MeasuredPod, noticed_at: float, evict_after: float
) -> None:
    """Record the event first, then write the annotation, from which the grace time counts.

    Raises:
        StatusError: the pod changed since it was read (422), or a right is missing.
        KubeError: other failures. Without the event there is no annotation.
    """
    about = next(pod_and_controller(pod))
    text = (
        f"holds GPU memory and has used none of it since {_moment(pod.last_use)}: it is evicted"
        f" after {_moment(evict_after)} unless it uses its GPU or has the label {IDLE_ALLOWED}=true"
    )
    kube.post(event_path(about), event_body(about, "Warning", NOTICED, text, SOURCE))
    notice = IdleNotice(pod.uid, int(noticed_at), int(evict_after))
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    kube.json_patch(path, _operations(pod, notice_text(notice)))


def evict_idle(kube: "BlockingClient", pod: MeasuredPod) -> None:
    """Evict a pod and record it on the pod and its controller.

    Raises:
        KubeError: as :func:`gpuinspect.eviction.requests.evict`.
    """
    evict(kube, pod)
    text = (
        f"evicted pod {pod.name} from node {pod.pod.node}: it has used none of its GPU memory since"
        f" {_moment(pod.last_use)}, and had notice"
    )
    for about in pod_and_controller(pod):
        record(kube, about, EVICTED, text, source=SOURCE)


def _operations(pod: MeasuredPod, value: str) -> list[Change]:
    """One annotation, on exactly the object that was read."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version},
        *set_entries(ANNOTATIONS, pod.pod.annotations, {IDLE_NOTICE: value}),
    ]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
