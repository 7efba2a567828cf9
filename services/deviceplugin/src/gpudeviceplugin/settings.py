"""What an operator can set: flags, then environment, then the defaults here.

A flag is the name with dashes (``--memory-unit``), a variable the name in capitals
(``MEMORY_UNIT``).
"""

import os
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from gpucore.node.grant import Visible
from gpucore.node.mpsgrant import MpsPlace
from gpucore.units import MemoryUnit

PIPE_OF_2019: Final = "/tmp/nvidia-mps"  # noqa: S108
"""Where ``--mps`` alone looks for the operator's daemon, as the change of 2019 did."""


def _unit(text: str) -> str:
    return str(MemoryUnit.parse(text))


class Settings(BaseSettings):
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

    node_name: str = Field(min_length=1, description="the node this runs on")
    kubelet_dir: Path = Field(
        Path("/var/lib/kubelet/device-plugins"), description="where kubelet's socket is"
    )
    pod_resources_socket: Path = Field(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        description="where kubelet tells which pod holds which devices",
    )
    kubeconfig: Path | None = Field(None, description="default: the pod's service account")
    memory_unit: Annotated[str, AfterValidator(_unit)] = Field(
        "GiB", description="GiB, MiB or a size such as 256MiB"
    )
    reserve_mib: int = Field(
        0,
        ge=0,
        description="MiB of every GPU and MIG instance to keep unallocated, "
        "besides the memory that the driver reserves",
    )
    resource_domain: str = Field("aliyun.com", description="of the extended resources")
    annotation_prefix: str = Field("ALIYUN_COM", description="of the pods' annotations")
    visible_devices: Visible = Field(
        Visible.UUID, description="how NVIDIA_VISIBLE_DEVICES names a card"
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
    mps: bool = Field(
        default=False, description="cards have isolation by MPS where no label says otherwise"
    )
    mps_root: str = Field(
        "", description="host directory of the MPS daemons that this runs; empty: it runs none"
    )
    mps_pipe: str = Field(
        "", description="pipes of one MPS daemon that you run yourself, instead of ours"
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
        default=False, description="clients of different users at the same time, all as root"
    )
    mps_check_seconds: float = Field(5.0, gt=0, description="between two looks at an MPS daemon")
    numa_hints: bool = Field(
        default=False, description="tell kubelet NUMA nodes; it may then overrule the scheduler"
    )
    node_type: str = Field("", description="NODE_TYPE; default: the instance-type label")
    usage_seconds: float = Field(4.0, gt=0, description="between two looks at the memory in use")
    overuse_slack_mib: int = Field(
        0, ge=0, description="MiB beyond its share that a pod may use before it is told"
    )
    host_proc: Path = Field(Path("/proc"), description="the host's processes, to attribute usage")
    listen_host: str = Field("0.0.0.0", description="of the metrics and health endpoint")  # noqa: S104
    listen_port: int = Field(9395, ge=0, le=65535, description="of that endpoint")
    tls_certificates: Path | None = Field(
        None, description="folder with tls.crt and tls.key: that endpoint over TLS; plain without"
    )
    ignored_xids: tuple[int, ...] = Field(
        (13, 31, 43, 45, 68, 109), description="error codes that are the application's fault"
    )
    probe_seconds: float = Field(5.0, gt=0, description="between two probes of a card")
    clean_probes: int = Field(3, ge=1, description="until a card that failed is offered again")
    refresh_seconds: float = Field(60.0, gt=0, description="between two enumerations")
    driver_retry_seconds: float = Field(
        5.0, gt=0, description="between two tries to reach a driver that is not there"
    )
    reconcile_seconds: float = Field(30.0, gt=0, description="between two looks at kubelet")
    match_patience: float = Field(
        0.3, ge=0, le=5, description="seconds to wait for the pod that kubelet asks for"
    )
    drain_seconds: float = Field(
        1.0,
        ge=0,
        le=10,
        description="seconds between telling schedulers that the plugin stops and closing its "
        "sockets; pods that were bound before are waited for up to 5 seconds more",
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
    def usable_kubeconfig(self) -> Path | None:
        """The kubeconfig; none in a pod that lacks the file, as the original's DaemonSet may."""
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        missing = self.kubeconfig is not None and not self.kubeconfig.exists()
        return None if missing and in_pod else self.kubeconfig

    @property
    def mps_place(self) -> MpsPlace | None:
        """Where MPS daemons are; ``None`` where no card of this node can have one."""
        if self.mps_root or self.mps_pipe:
            return MpsPlace(self.mps_root, self.mps_pipe, read_only=self.mps_read_only_pipes)
        return MpsPlace("", pipe=PIPE_OF_2019) if self.mps else None
