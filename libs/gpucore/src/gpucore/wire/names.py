"""Every resource, annotation, label, environment variable and object name, spelled once.

The names of the originals are law: gpushare of 2019 (``V1``), its second generation (``V2``), the
vendor's third (``V3``). Domain and annotation prefix are parameters: a cluster may run the
stack under its own.
"""

from typing import Final

import msgspec

# Ours: explicit units and GPUs, which the originals lack.
INVENTORY: Final = "gpushare/inventory"  # node annotation, versioned JSON
INVENTORY_HASH: Final = "gpushare/inventory-hash"  # node label: which inventory it has
UNIT: Final = "gpushare/unit"  # pod annotation: the unit its amounts are in
EXCLUSIVE: Final = "gpushare/exclusive"  # pod annotation, written at bind: it has its GPU alone
RETRY: Final = (
    "gpushare/retry"  # pod annotation: when a waiting pod was last sent back to its scheduler
)
POLICY: Final = "gpushare/policy"  # pod annotation: binpack, spread, fragmentation
ISOLATION: Final = (
    "gpushare/isolation"  # pod annotation: the isolation mode it demands; node label: its own
)
IDLE_ALLOWED: Final = "gpushare/idle-allowed"  # pod label "true": it may hold GPUs and use none
IDLE_NOTICE: Final = (
    "gpushare/idle-notice"  # pod annotation, JSON: when the pod is evicted if it stays idle
)
MEMORY_LIMIT: Final = "gpushare/memory-limit"  # pod annotation: most units that it may use
SIZING: Final = "gpushare/sizing"  # pod or namespace annotation: off, recommend or initial
SIZING_MIN: Final = (
    "gpushare/sizing-min"  # pod or namespace annotation: fewest units of a pod that is resized
)
SIZING_MAX: Final = (
    "gpushare/sizing-max"  # pod or namespace annotation: most units of a pod that is resized
)
SIZING_EXACT: Final = "gpushare/sizing-exact"  # pod annotation: its request is final
ORIGINAL_MEMORY: Final = (
    "gpushare/original-memory"  # pod annotation: units requested before the webhook resized it
)
ORIGINAL_MEMORY_LIMIT: Final = (
    "gpushare/original-memory-limit"  # pod annotation: its gpushare/memory-limit before that
)
DEFRAG: Final = "gpushare/defrag"  # pod annotation: whether defragmentation may evict the pod
DEFRAG_NEVER: Final = "never"
DEFRAG_ALLOW: Final = "allow"  # though its controller is none that is known to replace pods
DEFRAG_HISTORY: Final = "gpushare/defrag-history"  # annotation of defrag's Lease: its evictions
VERIFY: Final = "gpushare/verify"  # label of every object of a run of `gpushare verify`: its part
VERIFIED: Final = "gpushare/verified"  # annotation of the plugin's pod: results on its node
VERIFY_SECONDS: Final = "gpushare/verify-seconds"  # namespace annotation: maximum duration of a run
START_TURN: Final = "gpushare/start-turn"  # pod annotation: seconds to start alone on its GPU
START_TURN_WORDS: Final = "waits for its turn"  # in kubelet's message about such a pod
KAI_CONTAINER: Final = "nvidia.com/container."  # pod annotations of KAI: then the container's name
KAI_MEMORY_LIMIT: Final = ".gpu-memory.limit"  # and this; MiB
GPU_ISOLATION: Final = "gpushare/gpu-isolation"  # node annotation: "0=mps,1=none", by GPU
POLICY_NAMES: Final = ("binpack", "spread", "fragmentation")
TOPOLOGY: Final = "gpushare/topology"  # pod annotation: how GPUs that go together are chosen
TOPOLOGY_NAMES: Final = ("best-effort", "bandwidth", "static", "simple")

# Claims: GPU shares as ResourceClaims (Dynamic Resource Allocation).
API: Final = "gpushare/api"  # node label: how the node offers its GPUs; device plugin by default
API_DEVICES: Final = "devices"
API_CLAIMS: Final = "claims"
API_AUTO: Final = "auto"
CLAIM_TEMPLATE: Final = (
    "gpushare/claim-template"  # pod annotation: the claim template that a converted pod uses
)
CLAIM_MANAGER: Final = "gpushare-webhook"  # label value of the claim templates that it creates
CLAIM_DRIVER: Final = "gpu.gpushare.io"  # driver name in ResourceSlices and ResourceClaims

# V2, per container and GPU.
V2_ALLOCATION: Final = "scheduler.framework.gpushare.allocation"
V2_ASSIGNED: Final = "scheduler.framework.gpushare.assigned"
V2_ASSUME_TIME: Final = "scheduler.framework.gpushare.assume-time"

# V3, read only.
V3_MEMORY: Final = "gpushare.alibabacloud.com/gpumemory"
V3_CORE_PERCENTAGE: Final = "gpushare.alibabacloud.com/core-percentage"
V3_ASSIGNED: Final = "gpushare.alibabacloud.com/assigned"
V3_ASSUME_TIME: Final = "gpushare.alibabacloud.com/assume-time"

# Exclusive GPUs, in the vendor's later annotations, which arena reads: comma list of indexes.
GPU_GROUP: Final = "topology.kubernetes.io/gpu-group"  # GPUs that the pod holds
GPU_VISIBLE: Final = "topology.kubernetes.io/gpu-visible"  # GPUs that the pod sees; written only

# Node labels.
LABEL_SHARE: Final = "gpushare"
LABEL_TOPOLOGY: Final = "gputopology"
LABEL_CGPU_DISABLE: Final = "cgpu.disable.isolation"
LABEL_PLACEMENT: Final = "ack.node.gpu.placement"
LABEL_MAX_POD: Final = "ack.node.gpu.max-pod"
LABEL_OVERSELL: Final = "ack.node.gpu.schedule.oversell"
LABEL_SCHEDULE: Final = "ack.node.gpu.schedule"
SCHEDULE_MPS: Final = "mps"
LABEL_REQUIRE_WHOLE: Final = "ack.gpushare.placement"  # pod label
REQUIRE_WHOLE_DEVICE: Final = "require-whole-device"
GANG: Final = "gpu-topology"  # pod label
GANG_REPLICA: Final = "gpu-topology-replica"  # pod label
POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"  # pod label of arena's gangs
POD_GROUP_SIZE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"  # pod label
ACK_POD_GROUP: Final = "gputopology.alibabacloud.com/pod-group"  # pod label
ACK_POD_GROUP_SIZE: Final = "gputopology.alibabacloud.com/replica"  # pod label
GANG_LABELS: Final = (
    (GANG, GANG_REPLICA),
    (POD_GROUP, POD_GROUP_SIZE),
    (ACK_POD_GROUP, ACK_POD_GROUP_SIZE),
)
"""Label with the name, label with the number of pods."""

# Node annotations of the topology plugin.
NODE_TOPOLOGY: Final = "GPU_TOPOLOGY"
NODE_TYPE: Final = "NODE_TYPE"

# Environment in containers.
ENV_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
ENV_CGPU_DISABLE: Final = "CGPU_DISABLE"
ENV_MEM_FRACTION: Final = "GPUSHARE_MEM_FRACTION"
ENV_MEM_LIMIT_MIB: Final = "GPUSHARE_MEM_LIMIT_MIB"
ENV_PROCESS_FRACTION: Final = "GPUSHARE_PROCESS_MEM_FRACTION"  # less the head-room; model servers
ENV_MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
ENV_MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
ENV_MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
ENV_DRIVER_REQUEST: Final = "NVIDIA_GPU_MEMORY_REQUEST"  # MiB; read by NVIDIA's container toolkit
ENV_DRIVER_LIMIT: Final = "NVIDIA_GPU_MEMORY_LIMIT"
LIMITING_ENV: Final = frozenset(
    {
        ENV_MPS_THREADS,
        ENV_MPS_MEMORY,
        ENV_MPS_PIPE,
        ENV_CGPU_DISABLE,
        ENV_DRIVER_REQUEST,
        ENV_DRIVER_LIMIT,
    }
)
"""Variables that hold a container to its share; a pod that requests GPUs may not set them."""
NO_DEVICES: Final = frozenset({"none", "void"})
"""Values of NVIDIA_VISIBLE_DEVICES that hide every GPU."""

# Labels that arena gives to what serves a model; Deployments and pods alike.
LABEL_SERVING_NAME: Final = "servingName"
LABEL_SERVING_TYPE: Final = "servingType"
LABEL_SERVING_VERSION: Final = "servingVersion"

# NVIDIA's own device plugin, which must not run on shared nodes.
NVIDIA_DEPLOY_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"  # node label
NVIDIA_HELD_AFFINITY: Final = "gpushare/nvidia-plugin-affinity"  # DaemonSet annotation
NVIDIA_HELD_LABEL: Final = "gpushare/nvidia-plugin-label"  # node annotation

# LeaderWorkerSet, whose groups of pods start and end together.
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"  # pod label
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"  # pod annotation: pods of its group

# Kubeflow's notebook controller and its culler of idle notebooks.
NOTEBOOK_NAME: Final = "notebook-name"  # pod label: the Notebook whose StatefulSet created it
NOTEBOOK_LAST_ACTIVITY: Final = "notebooks.kubeflow.org/last-activity"  # annotation, RFC 3339
NOTEBOOK_STOPPED: Final = "kubeflow-resource-stopped"  # annotation of a Notebook without a pod

# The legacy list of a node's unhealthy GPUs.
UNHEALTHY_NAMESPACE: Final = "kube-system"
UNHEALTHY_PREFIX: Final = "unhealthy-gpu-"
UNHEALTHY_KEY: Final = "gpus"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MIRROR_POD: Final = "kubernetes.io/config.mirror"  # on what shows a static pod; any user may set it
PLUGIN: Final = "gpushare-device-plugin"

DEVICE_ID_SEPARATOR: Final = "-_-"


class Names(msgspec.Struct, frozen=True):
    """The names that follow from the resource domain and the annotation prefix.

    Attributes:
        domain: of the extended resources, e.g. ``aliyun.com``.
        prefix: of the first generation's annotations and variables, e.g. ``ALIYUN_COM``.
    """

    domain: str = "aliyun.com"
    prefix: str = "ALIYUN_COM"

    @property
    def gpu_mem(self) -> str:
        """Resource: units of GPU memory."""
        return f"{self.domain}/gpu-mem"

    @property
    def gpu_core(self) -> str:
        """Resource: percent of one GPU's compute, 100 a GPU."""
        return f"{self.domain}/gpu-core.percentage"

    @property
    def gpu(self) -> str:
        """Resource: exclusive GPUs."""
        return f"{self.domain}/gpu"

    @property
    def gpu_count(self) -> str:
        """Resource on nodes (informational) and label on pods (GPUs to spread over)."""
        return f"{self.domain}/gpu-count"

    @property
    def mem_idx(self) -> str:
        """V1: index of the GPU."""
        return f"{self.prefix}_GPU_MEM_IDX"

    @property
    def mem_dev(self) -> str:
        """V1: units of that GPU."""
        return f"{self.prefix}_GPU_MEM_DEV"

    @property
    def mem_pod(self) -> str:
        """V1: units of the pod."""
        return f"{self.prefix}_GPU_MEM_POD"

    @property
    def mem_container(self) -> str:
        """V1 environment: units of the container."""
        return f"{self.prefix}_GPU_MEM_CONTAINER"

    @property
    def mem_assigned(self) -> str:
        """V1: ``false`` at bind, ``true`` when the node has handed the GPU out."""
        return f"{self.prefix}_GPU_MEM_ASSIGNED"

    @property
    def mem_assume_time(self) -> str:
        """V1: Unix time of the decision in nanoseconds."""
        return f"{self.prefix}_GPU_MEM_ASSUME_TIME"

    @property
    def group(self) -> str:
        """Exclusive GPUs: comma list of indexes."""
        return f"{self.prefix}_GPU_GROUP"

    @property
    def group_assigned(self) -> str:
        """Exclusive GPUs: as :attr:`mem_assigned`."""
        return f"{self.prefix}_GPU_ASSIGNED"

    @property
    def group_assume_time(self) -> str:
        """Exclusive GPUs: as :attr:`mem_assume_time`."""
        return f"{self.prefix}_GPU_ASSUME_TIME"


DEFAULT_NAMES: Final = Names()
