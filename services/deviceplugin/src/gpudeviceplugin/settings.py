"""Settings of the plugin: flags take precedence over environment variables and defaults.

A flag is the name with dashes (``--memory-unit``), a variable the name in capitals
(``MEMORY_UNIT``).
"""

import os
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from gpucore.model import IsolationMode
from gpucore.node.grant import Visible
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import MemoryUnit

PIPE_OF_2019: Final = "/tmp/nvidia-mps"  # noqa: S108
"""Where ``--mps`` alone looks for the operator's daemon, as the change of 2019 did."""


def _unit(text: str) -> str:
    return str(MemoryUnit.parse(text))


class DevicePluginSettings(BaseSettings):
    """The settings of one device plugin process."""

    model_config = SettingsConfigDict(
        frozen=True,
        cli_kebab_case=True,
        cli_prog_name="gpushare-device-plugin",
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_implicit_flags=True,
        extra="ignore",
    )

    node_name: str = Field(min_length=1, description="name of the node this plugin runs on")
    kubelet_dir: Path = Field(
        Path("/var/lib/kubelet/device-plugins"),
        description="directory of kubelet's device plugin socket",
    )
    pod_resources_socket: Path = Field(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        description="socket of kubelet's PodResources API",
    )
    kubeconfig: Path | None = Field(
        None, description="path of a kubeconfig file; default: the pod's service account"
    )
    memory_unit: Annotated[str, AfterValidator(_unit)] = Field(
        "GiB", description="GiB, MiB or a size such as 256MiB"
    )
    reserve_mib: int = Field(
        0,
        ge=0,
        description="MiB of every GPU and MIG instance to keep unallocated, "
        "besides the memory that the driver reserves",
    )
    resource_domain: str = Field("aliyun.com", description="domain of the extended resources")
    annotation_prefix: str = Field("ALIYUN_COM", description="prefix of the pods' annotations")
    visible_devices: Visible = Field(
        Visible.UUID, description="how NVIDIA_VISIBLE_DEVICES names a GPU"
    )
    cdi: Literal["auto", "on", "off"] = Field(
        "auto",
        description="deliver limits by CDI, where a pod cannot replace them; auto: by the versions "
        "of kubelet and container runtime",
    )
    cdi_dir: Path = Field(
        Path("/var/run/cdi"), description="directory of the container runtime's CDI files"
    )
    cdi_kind: str = Field(
        "", description="also name a CDI device of this kind for each GPU, such as nvidia.com/gpu"
    )
    api: Literal["devices", "claims", "auto"] = Field(
        "devices",
        description="offer the GPUs of a node without the label gpushare/api as devices of the "
        "device plugin or as ResourceClaims; auto: claims where the cluster has consumable "
        "capacity",
    )
    claims: bool = Field(
        default=False,
        description="let the label gpushare/api choose claims; implied by --api claims and auto",
    )
    policy: Literal["binpack", "spread", "fragmentation"] = Field(
        "binpack",
        description="order of the GPUs in the ResourceSlice, which decides the GPU of a claim, "
        "unless the node's label ack.node.gpu.placement sets one",
    )
    unhealthy_claims: Literal["keep", "evict"] = Field(
        "keep",
        description="pods with claims on a GPU that becomes unhealthy: keep, or evict by a taint "
        "with the effect NoExecute",
    )
    plugins_registry: Path = Field(
        Path("/var/lib/kubelet/plugins_registry"),
        description="directory in which kubelet looks for DRA drivers",
    )
    plugins_dir: Path = Field(
        Path("/var/lib/kubelet/plugins"),
        description="directory of kubelet's plugins; the DRA driver keeps its socket and prepared "
        "claims below it",
    )
    pod_uid: str = Field(
        "", description="UID of the plugin's pod, so that two plugins can serve during an update"
    )
    mps: bool = Field(
        default=False, description="use isolation mode mps for GPUs without a label or annotation"
    )
    mps_root: str = Field(
        "", description="host directory of the MPS daemons run by this plugin; empty: none"
    )
    mps_pipe: str = Field(
        "", description="pipe directory of an MPS daemon that is managed elsewhere"
    )
    mps_shm: str = Field(
        "",
        description="host path of the volume of bounded size that daemons and clients share, which "
        "is /dev/shm here; empty: a directory in mps_root",
    )
    mps_read_only_pipes: bool = Field(
        default=False, description="mount the directory of pipes read-only into containers"
    )
    mps_control: str = Field("nvidia-cuda-mps-control", description="the MPS control program")
    mps_multi_user: bool = Field(
        default=False,
        description="serve clients of different users at once, with servers running as root",
    )
    mps_check_seconds: float = Field(
        5.0, gt=0, description="seconds between two checks of an MPS daemon"
    )
    driver_limits: bool = Field(
        default=False,
        description="offer isolation mode driver: memory limits that the NVIDIA driver, r615 or "
        "newer, enforces on pods' cgroups",
    )
    driver_limits_seconds: float = Field(
        5.0, gt=0, description="seconds between two checks of the driver's memory limits"
    )
    isolation: Literal["", "none", "mps", "driver", "driver+mps", "auto"] = Field(
        "",
        description="isolation mode of GPUs without a label or annotation; auto: the strongest "
        "that the GPU can have; empty: mps with --mps, otherwise none",
    )
    cgroup_root: Path = Field(
        Path("/sys/fs/cgroup"), description="the host's mount of cgroup v2, for driver limits"
    )
    cgroup_parent: str = Field(
        "", description="kubelet's cgroupRoot, if it is not the root of all cgroups"
    )
    start_turns: bool = Field(
        default=False,
        description="let pods with the annotation gpushare/start-turn start on a GPU one after the "
        "other",
    )
    numa_hints: bool = Field(
        default=False,
        description="report NUMA nodes to kubelet; its topology manager may override the scheduler",
    )
    node_type: str = Field(
        "",
        description="value of the annotation NODE_TYPE; default: the instance-type label",
    )
    usage_seconds: float = Field(
        4.0, gt=0, description="seconds between two measurements of memory in use"
    )
    record_seconds: float = Field(
        15.0,
        ge=0,
        description="seconds between two samples of workloads' memory in use for their histories; "
        "0: record none",
    )
    record_dir: Path | None = Field(
        None,
        description="directory of the node for the histories; default: none, kept in memory only",
    )
    overuse_slack_mib: int = Field(
        0, ge=0, description="MiB that a pod may use beyond its share before an event reports it"
    )
    host_proc: Path = Field(
        Path("/proc"), description="the host's /proc, used to attribute GPU memory to pods"
    )
    listen_host: str = Field(
        "",
        description="address of the metrics and health endpoints; empty: all, of IPv4 and IPv6",
    )
    listen_port: int = Field(
        9395, ge=0, le=65535, description="port of the metrics and health endpoints"
    )
    tls_certificates: Path | None = Field(
        None, description="directory with tls.crt and tls.key; serves these endpoints over TLS"
    )
    ignored_xids: tuple[int, ...] = Field(
        (13, 31, 43, 45, 68, 109),
        description="XID error codes caused by applications; they do not mark a GPU unhealthy",
    )
    probe_seconds: float = Field(5.0, gt=0, description="seconds between two probes of a GPU")
    clean_probes: int = Field(
        3, ge=1, description="number of successful probes before an unhealthy GPU is offered again"
    )
    refresh_seconds: float = Field(
        60.0, gt=0, description="seconds between two enumerations of GPUs"
    )
    driver_retry_seconds: float = Field(
        5.0, gt=0, description="seconds between two attempts to load a missing driver"
    )
    reconcile_seconds: float = Field(
        30.0, gt=0, description="seconds between two reads of kubelet's PodResources"
    )
    match_patience: float = Field(
        0.3,
        ge=0,
        le=5,
        description="seconds to wait for the watch to deliver the pod that kubelet is admitting",
    )
    drain_seconds: float = Field(
        1.0,
        ge=0,
        le=10,
        description="seconds between the notice to schedulers that the plugin stops and the "
        "closing of its sockets; it waits up to 5 seconds more for pods that are already bound",
    )
    breaker_failures: int = Field(
        5,
        ge=1,
        description="number of pods, of at least two namespaces, that the container runtime "
        "cannot start because of a GPU until that GPU becomes unhealthy",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )

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
