"""What an operator can set, and how: command line over environment over default.

``PORT``, ``LOG_LEVEL`` and ``KUBECONFIG`` are the original's names; everything else is
``GPUSHARE_<NAME>`` or ``--<name>``. Kubernetes injects ``<SERVICE>_PORT`` variables for services of
the same namespace (``tcp://...``), which are passed over where they meet a setting's name.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gpucore.claims.convert import ClaimRequests
from gpucore.model.links import TopologyError
from gpucore.scheduling.cluster_policy import ClusterPolicy, SchedulerProfiles
from gpucore.scheduling.grouping import Grouping
from gpucore.topology.static import decode_static
from gpucore.units import MemoryUnit
from gpucore.wire.names import Names

DEFAULT_PORT: Final = 39999
SOURCE: Final = "settings of this extender"
"""Where the policies in a document come from."""
LogLevel = Literal["debug", "info", "warn", "error"]


class ExtenderSettings(BaseSettings):
    """Settings of one process; times are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix="GPUSHARE_",
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        cli_prog_name="gpushare-extender",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    kubeconfig: Annotated[
        Path | None,
        Field(
            validation_alias="kubeconfig",
            description="path of a kubeconfig file; default: the pod's service account",
        ),
    ] = None
    host: Annotated[
        str, Field(description="address to listen on; empty: all, of IPv4 and IPv6")
    ] = ""
    port: Annotated[
        int,
        Field(
            validation_alias="port",
            ge=0,
            le=65535,
            description="port to listen on; 0 selects a free port",
        ),
    ] = DEFAULT_PORT
    tls_certificates: Annotated[
        Path | None,
        Field(description="directory with tls.crt and tls.key; serves the endpoints over TLS"),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Field(description="CA bundle used to verify client certificates"),
    ] = None
    tls_client_names: Annotated[
        str,
        Field(
            description="accepted common or DNS names of client certificates, separated by commas"
        ),
    ] = ""
    metrics_host: Annotated[
        str,
        Field(
            description="address that serves metrics and health checks; empty: all, of IPv4 and "
            "IPv6"
        ),
    ] = ""
    metrics_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description="port that serves /metrics, /healthz and /readyz; default: none",
        ),
    ] = None
    metrics_certificates: Annotated[
        Path | None,
        Field(description="directory with tls.crt and tls.key; serves that port over TLS"),
    ] = None
    log_level: Annotated[LogLevel, Field(validation_alias="log_level", description="log level")] = (
        "warn"
    )
    domain: Annotated[str, Field(description="domain of the extended resources")] = "aliyun.com"
    annotation_prefix: Annotated[
        str, Field(description="prefix of the original gpushare annotations")
    ] = "ALIYUN_COM"
    policy: Annotated[
        Literal["binpack", "spread", "fragmentation"],
        Field(description="default policy for choosing a GPU"),
    ] = "binpack"
    topology_policy: Annotated[
        Literal["best-effort", "static", "simple", "bandwidth"],
        Field(description="default policy for choosing connected GPUs"),
    ] = "best-effort"
    topology_config: Annotated[
        Path | None, Field(description="JSON file with the GPU sets of the static policy")
    ] = None
    unhealthy_configmaps: Annotated[
        bool,
        Field(
            description="treat the GPUs as unhealthy that ConfigMap"
            " kube-system/unhealthy-gpu-<node> lists"
        ),
    ] = False
    pod_groups: Annotated[
        bool, Field(description="follow the PodGroups of Kubernetes, where it serves them")
    ] = True
    stale_after: Annotated[
        float,
        Field(
            gt=0,
            description="refuse requests after this many seconds of API server silence",
        ),
    ] = 90.0
    assume_ttl: Annotated[
        float, Field(gt=0, description="release an unconfirmed reservation after this many seconds")
    ] = 120.0
    bind_deadline: Annotated[
        float,
        Field(
            gt=0, description="timeout of a bind in seconds; less than the scheduler's httpTimeout"
        ),
    ] = 4.0
    candidates: Annotated[
        int,
        Field(
            ge=0,
            description="maximum number of nodes in a reply of filter, the best by the policy;"
            " 0: all that fit. Pods with preferred affinity or ScheduleAnyway always get all",
        ),
    ] = 1
    percentage_of_nodes: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="percentageOfNodesToScore of the scheduler that calls, for what-if;"
            " 0: kube-scheduler's default",
        ),
    ] = 0
    nominate: Annotated[
        Literal["off", "refused", "backlog"],
        Field(
            description="write status.nominatedNodeName, so that kube-scheduler evaluates the best"
            " node first (Kubernetes 1.22 and later): of pods that it refused although a node"
            " admits them, or also of a backlog of pending pods; with claims of every pod whose"
            " GPUs are requested by ResourceClaims"
        ),
    ] = "refused"
    nominate_lease: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$",
            description="namespace/name of the Lease of the kube-scheduler in this pod; nominate"
            " and write the mix-history only while it holds the Lease; default: always",
        ),
    ] = ""
    mix_history: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$",
            description="namespace/name of an existing ConfigMap that keeps the pods from which the"
            " mix of the fragmentation policy is learned, over restarts, and has the mix in use;"
            " default: none",
        ),
    ] = ""
    nominate_after: Annotated[
        int,
        Field(ge=0, description="number of pending pods of a backlog that are not nominated"),
    ] = 16
    nominate_limit: Annotated[
        int, Field(gt=0, description="maximum number of nominated pods that are not bound yet")
    ] = 4096
    webhook_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="port of the admission webhook (TLS); default: none"),
    ] = None
    webhook_certificates: Annotated[
        Path,
        Field(description="directory with the webhook's tls.crt and tls.key, reloaded on change"),
    ] = Path("/etc/gpushare/webhook")
    webhook_scheduler: Annotated[
        str, Field(description="schedulerName set by the webhook; empty: unchanged")
    ] = "gpushare-scheduler"
    burst_scheduler: Annotated[
        str,
        Field(
            description="schedulerName set by the webhook while many pods are pending: a second"
            " profile of the same kube-scheduler, with percentageOfNodesToScore 1; default: none"
        ),
    ] = ""
    burst_pods: Annotated[
        int,
        Field(
            ge=0,
            description="number of pending pods above which new pods get burst-scheduler; at a"
            " quarter of it they get webhook-scheduler again; 0: never",
        ),
    ] = 32
    claims: Annotated[
        bool,
        Field(
            description="read ResourceSlices and ResourceClaims (resource.k8s.io/v1), so that"
            " metrics and /api/v1 cover GPUs that nodes offer as claims and nodes are nominated for"
            " pods with claims"
        ),
    ] = False
    claims_convert: Annotated[
        bool,
        Field(
            description="let the webhook turn requests for GPU memory into ResourceClaims in"
            " namespaces that the API server sends to /admit-claims, and create their templates"
        ),
    ] = False
    claims_unit: Annotated[
        str,
        Field(
            pattern=r"^([1-9][0-9]{0,6})?(MiB|GiB)$",
            description="size of a unit of GPU memory in pods that are converted",
        ),
    ] = "GiB"
    claims_class: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
            description="DeviceClass of shares in the templates that are created",
        ),
    ] = "gpushare"
    sizing: Annotated[
        bool,
        Field(
            description="let the webhook give new pods the GPU memory that their workload was"
            " measured to need, where the annotation gpushare/sizing of the pod or its namespace is"
            " initial; reads the histories of the device plugins in the background"
        ),
    ] = False
    sizing_namespace: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$",
            description="namespace of the device plugins; required with sizing",
        ),
    ] = ""
    sizing_interval: Annotated[
        float, Field(ge=10, description="seconds between two reads of the histories")
    ] = 300.0
    sizing_margin: Annotated[
        int,
        Field(ge=0, le=1000, description="percent of memory above what was measured"),
    ] = 15
    certificates_reload: Annotated[
        float, Field(gt=0, description="interval in seconds between checks for new certificates")
    ] = 10.0
    drain_seconds: Annotated[
        float, Field(ge=0, description="seconds between SIGTERM, when readiness fails, and exit")
    ] = 0.0

    @field_validator("port", mode="before")
    @classmethod
    def _original_port_rule(cls, value: Any) -> Any:
        """Fall back to the default where the text is no number, as the original does."""
        try:
            return int(value)
        except (TypeError, ValueError):
            return DEFAULT_PORT

    @field_validator("topology_policy", mode="before")
    @classmethod
    def _original_spelling(cls, value: Any) -> Any:
        """The topology extender of 2019 wrote ``best_effort``."""
        return value.replace("_", "-") if isinstance(value, str) else value

    @field_validator("metrics_port", "webhook_port", mode="before")
    @classmethod
    def _not_of_a_service(cls, value: Any) -> Any:
        """Pass over what Kubernetes injects for a service that happens to have our name."""
        return None if isinstance(value, str) and "://" in value else value

    @model_validator(mode="after")
    def _sensible(self) -> "ExtenderSettings":
        """Complain of what cannot be before anything is served."""
        self.grouping()
        if self.tls_client_ca is not None and self.tls_certificates is None:
            raise ValueError(
                "tls-client-ca needs tls-certificates: without TLS clients send no certificate"
            )
        if bool(self.client_names) != (self.tls_client_ca is not None):
            raise ValueError(
                "tls-client-ca and tls-client-names: set both or none, for an authority may"
                " sign certificates of others than the scheduler"
            )
        if self.sizing and not self.sizing_namespace:
            raise ValueError("sizing needs sizing-namespace, the namespace of the device plugins")
        return self

    def grouping(self) -> Grouping:
        """How several GPUs are chosen, the configured sets included.

        Raises:
            ValueError: the file of sets cannot be read, or is none.
        """
        if self.topology_config is None:
            return Grouping(self.topology_policy, wait=False)
        try:
            static = decode_static(self.topology_config.read_bytes())
        except (OSError, TopologyError) as error:
            raise ValueError(f"topology-config: {error}") from error
        return Grouping(self.topology_policy, static, wait=False)

    def cluster_policy(self) -> ClusterPolicy:
        """What decides where a pod goes, for what-if and explain.

        Raises:
            ValueError: as :meth:`grouping`.
        """
        grouping = self.grouping()
        return ClusterPolicy(
            self.policy,
            grouping.policy,
            SOURCE,
            grouping.static,
            candidates=self.candidates,
            percentage=self.percentage_of_nodes,
            profiles=self.profiles,
            wait=grouping.wait,
        )

    def claim_requests(self) -> ClaimRequests | None:
        """How the webhook turns shares into claims; ``None`` where it does not."""
        if not self.claims_convert:
            return None
        return ClaimRequests(self.names, MemoryUnit.parse(self.claims_unit), self.claims_class)

    @property
    def profiles(self) -> SchedulerProfiles:
        """The profiles of the scheduler that calls the extender."""
        return SchedulerProfiles(self.webhook_scheduler, self.burst_scheduler, self.burst_pods)

    @property
    def client_names(self) -> frozenset[str]:
        """Permitted client names of the scheduler routes; empty where TLS needs no client."""
        return frozenset(filter(None, map(str.strip, self.tls_client_names.split(","))))

    @property
    def names(self) -> Names:
        """Resource and annotation names of this cluster."""
        return Names(domain=self.domain, prefix=self.annotation_prefix)
