"""Settings of the plugin: flags take precedence over environment variables and defaults.

A flag is the name with dashes (``--memory-unit``), a variable the name in capitals
(``MEMORY_UNIT``).
"""

import os
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from msgspec import Meta, Struct

from gpucore.model import IsolationMode
from gpucore.node.grant import Visible
from gpucore.node.health.records import APPLICATION_XIDS
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import MemoryUnit

PIPE_OF_2019: Final = "/tmp/nvidia-mps"  # noqa: S108
"""Where ``--mps`` alone looks for the operator's daemon, as the change of 2019 did."""


class UnitName(str):
    """The name of a unit of memory, as :class:`MemoryUnit` writes it."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, MemoryUnit.parse(text))


class DevicePluginSettings(Struct, frozen=True, kw_only=True):
    """The settings of one device plugin process."""

    node_name: Annotated[
        str, Meta(min_length=1, description="name of the node this plugin runs on")
    ]
    kubelet_dir: Annotated[
        Path, Meta(description="directory of kubelet's device plugin socket")
    ] = Path("/var/lib/kubelet/device-plugins")
    pod_resources_socket: Annotated[
        Path, Meta(description="socket of kubelet's PodResources API")
    ] = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    kubeconfig: Annotated[
        Path | None,
        Meta(description="path of a kubeconfig file; default: the pod's service account"),
    ] = None
    memory_unit: Annotated[UnitName, Meta(description="GiB, MiB or a size such as 256MiB")] = (
        UnitName("GiB")
    )
    reserve_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="MiB of every GPU and MIG instance to keep unallocated, "
            "besides the memory that the driver reserves",
        ),
    ] = 0
    resource_domain: Annotated[str, Meta(description="domain of the extended resources")] = (
        "aliyun.com"
    )
    annotation_prefix: Annotated[str, Meta(description="prefix of the pods' annotations")] = (
        "ALIYUN_COM"
    )
    visible_devices: Annotated[
        Visible, Meta(description="how NVIDIA_VISIBLE_DEVICES names a GPU")
    ] = Visible.UUID
    cdi: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="deliver limits by CDI, where a pod cannot replace them; auto: by the "
            "versions of kubelet and container runtime"
        ),
    ] = "auto"
    cdi_dir: Annotated[Path, Meta(description="directory of the container runtime's CDI files")] = (
        Path("/var/run/cdi")
    )
    cdi_kind: Annotated[
        str,
        Meta(
            description="also name a CDI device of this kind for each GPU, such as nvidia.com/gpu"
        ),
    ] = ""
    api: Annotated[
        Literal["devices", "claims", "auto"],
        Meta(
            description="offer the GPUs of a node without the label gpushare/api as devices of the "
            "device plugin or as ResourceClaims; auto: claims where the cluster has consumable "
            "capacity"
        ),
    ] = "devices"
    claims: Annotated[
        bool,
        Meta(
            description="let the label gpushare/api choose claims; implied by --api claims and auto"
        ),
    ] = False
    policy: Annotated[
        Literal["binpack", "spread", "fragmentation"],
        Meta(
            description="order of the GPUs in the ResourceSlice, which decides the GPU of a claim, "
            "unless the node's label ack.node.gpu.placement sets one"
        ),
    ] = "binpack"
    unhealthy_claims: Annotated[
        Literal["keep", "evict"],
        Meta(
            description="pods with claims on a GPU that becomes unhealthy: keep, or evict by a "
            "taint with the effect NoExecute"
        ),
    ] = "keep"
    plugins_registry: Annotated[
        Path, Meta(description="directory in which kubelet looks for DRA drivers")
    ] = Path("/var/lib/kubelet/plugins_registry")
    plugins_dir: Annotated[
        Path,
        Meta(
            description="directory of kubelet's plugins; the DRA driver keeps its socket and "
            "prepared claims below it"
        ),
    ] = Path("/var/lib/kubelet/plugins")
    pod_uid: Annotated[
        str,
        Meta(description="UID of the plugin's pod, so that two plugins can serve during an update"),
    ] = ""
    mps: Annotated[
        bool, Meta(description="use isolation mode mps for GPUs without a label or annotation")
    ] = False
    mps_root: Annotated[
        str, Meta(description="host directory of the MPS daemons run by this plugin; empty: none")
    ] = ""
    mps_pipe: Annotated[
        str, Meta(description="pipe directory of an MPS daemon that is managed elsewhere")
    ] = ""
    mps_shm: Annotated[
        str,
        Meta(
            description="host path of the volume of bounded size that daemons and clients share, "
            "which is /dev/shm here; empty: a directory in mps_root"
        ),
    ] = ""
    mps_read_only_pipes: Annotated[
        bool, Meta(description="mount the directory of pipes read-only into containers")
    ] = False
    mps_control: Annotated[str, Meta(description="the MPS control program")] = (
        "nvidia-cuda-mps-control"
    )
    mps_multi_user: Annotated[
        bool,
        Meta(description="serve clients of different users at once, with servers running as root"),
    ] = False
    mps_check_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two checks of an MPS daemon")
    ] = 5.0
    driver_limits: Annotated[
        bool,
        Meta(
            description="offer isolation mode driver: memory limits that the NVIDIA driver, r615 "
            "or newer, enforces on pods' cgroups"
        ),
    ] = False
    driver_limits_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two checks of the driver's memory limits")
    ] = 5.0
    isolation: Annotated[
        Literal["", "none", "mps", "driver", "driver+mps", "auto"],
        Meta(
            description="isolation mode of GPUs without a label or annotation; auto: the strongest "
            "that the GPU can have; empty: mps with --mps, otherwise none"
        ),
    ] = ""
    cgroup_root: Annotated[
        Path, Meta(description="the host's mount of cgroup v2, for driver limits")
    ] = Path("/sys/fs/cgroup")
    cgroup_parent: Annotated[
        str, Meta(description="kubelet's cgroupRoot, if it is not the root of all cgroups")
    ] = ""
    start_turns: Annotated[
        bool,
        Meta(
            description="let pods with the annotation gpushare/start-turn start on a GPU one "
            "after the other"
        ),
    ] = False
    numa_hints: Annotated[
        bool,
        Meta(
            description="report NUMA nodes to kubelet; its topology manager may override the "
            "scheduler"
        ),
    ] = False
    node_type: Annotated[
        str, Meta(description="value of the annotation NODE_TYPE; default: the instance-type label")
    ] = ""
    usage_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two measurements of memory in use")
    ] = 4.0
    record_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds between two samples of workloads' memory in use for their "
            "histories; 0: record none",
        ),
    ] = 15.0
    record_dir: Annotated[
        Path | None,
        Meta(
            description="directory of the node for the histories; default: none, kept in memory "
            "only"
        ),
    ] = None
    overuse_slack_mib: Annotated[
        int,
        Meta(
            ge=0, description="MiB that a pod may use beyond its share before an event reports it"
        ),
    ] = 0
    host_proc: Annotated[
        Path, Meta(description="the host's /proc, used to attribute GPU memory to pods")
    ] = Path("/proc")
    listen_host: Annotated[
        str,
        Meta(
            description="address of the metrics and health endpoints; empty: all, of IPv4 and IPv6"
        ),
    ] = ""
    listen_port: Annotated[
        int, Meta(ge=0, le=65535, description="port of the metrics and health endpoints")
    ] = 9395
    tls_certificates: Annotated[
        Path | None,
        Meta(description="directory with tls.crt and tls.key; serves these endpoints over TLS"),
    ] = None
    ignored_xids: Annotated[
        tuple[int, ...],
        Meta(
            description="XID error codes caused by applications; they do not mark a GPU unhealthy"
        ),
    ] = APPLICATION_XIDS
    probe_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two probes of a GPU")
    ] = 5.0
    clean_probes: Annotated[
        int,
        Meta(
            ge=1, description="number of successful probes before an unhealthy GPU is offered again"
        ),
    ] = 3
    refresh_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two enumerations of GPUs")
    ] = 60.0
    driver_retry_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two attempts to load a missing driver")
    ] = 5.0
    reconcile_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two reads of kubelet's PodResources")
    ] = 30.0
    match_patience: Annotated[
        float,
        Meta(
            ge=0,
            le=5,
            description="seconds to wait for the watch to deliver the pod that kubelet is "
            "admitting",
        ),
    ] = 0.3
    drain_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            description="seconds between the notice to schedulers that the plugin stops and the "
            "closing of its sockets; it waits up to 5 seconds more for pods that are already bound",
        ),
    ] = 1.0
    breaker_failures: Annotated[
        int,
        Meta(
            ge=1,
            description="number of pods, of at least two namespaces, that the container runtime "
            "cannot start because of a GPU until that GPU becomes unhealthy",
        ),
    ] = 5
    unhealthy_configmap: Annotated[
        bool,
        Meta(
            description="write ConfigMap kube-system/unhealthy-gpu-<node> for an original "
            "extender; needs the right to get, create, patch and delete it"
        ),
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="debug, info, warning or error"),
    ] = "info"

    @property
    def unit(self) -> MemoryUnit:
        """The size of one device of memory."""
        return MemoryUnit.parse(self.memory_unit)

    @property
    def claims_enabled(self) -> bool:
        """This process can prepare claims."""
        return self.claims or self.api != "devices"

    @property
    def usable_kubeconfig(self) -> Path | None:
        """The kubeconfig; none in a pod that lacks the file, as the original's DaemonSet may."""
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        missing = self.kubeconfig is not None and not self.kubeconfig.exists()
        return None if missing and in_pod else self.kubeconfig

    @property
    def default_isolation(self) -> IsolationMode | None:
        """The isolation mode of GPUs without a label or annotation; ``None``: the strongest."""
        if self.isolation == "auto":
            return None
        legacy = IsolationMode.MPS if self.mps else IsolationMode.NONE
        return IsolationMode(self.isolation) if self.isolation else legacy

    @property
    def mps_place(self) -> MpsPlace | None:
        """The directories of MPS daemons; ``None`` where no GPU of this node can have one."""
        if self.mps_root or self.mps_pipe:
            return MpsPlace(self.mps_root, self.mps_pipe, read_only=self.mps_read_only_pipes)
        return MpsPlace("", pipe=PIPE_OF_2019) if self.mps else None
