"""What an operator can set, and how: command line over environment over default.

``PORT``, ``LOG_LEVEL`` and ``KUBECONFIG`` are the original's names; everything else is
``GPUSHARE_<NAME>`` or ``--<name>``. Kubernetes injects ``<SERVICE>_PORT`` variables for services of
the same namespace (``tcp://...``), which are passed over where they meet a setting's name.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gpucore.grouping import Grouping
from gpucore.topology.links import TopologyError
from gpucore.topology.static import decode_static
from gpucore.wire.names import Names

DEFAULT_PORT: Final = 39999
LogLevel = Literal["debug", "info", "warn", "error"]


class Settings(BaseSettings):
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
        Field(validation_alias="kubeconfig", description="file; in-cluster without one"),
    ] = None
    host: Annotated[str, Field(description="address to listen on")] = "0.0.0.0"  # noqa: S104 - in a pod the scheduler may be in another one
    port: Annotated[
        int, Field(validation_alias="port", ge=0, le=65535, description="port; 0 picks one")
    ] = DEFAULT_PORT
    tls_certificates: Annotated[
        Path | None,
        Field(description="folder with tls.crt and tls.key: the verbs over TLS; plain without"),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Field(description="file of the authority whose certificate a client of the verbs shows"),
    ] = None
    tls_client_names: Annotated[
        str,
        Field(description="comma-separated common or DNS names of client certificates to accept"),
    ] = ""
    metrics_host: Annotated[str, Field(description="address of the metrics port")] = "0.0.0.0"  # noqa: S104 - Prometheus and kubelet come from outside the pod
    metrics_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="/metrics, /healthz, /readyz alone; off without"),
    ] = None
    metrics_certificates: Annotated[
        Path | None,
        Field(description="folder with tls.crt and tls.key: that port over TLS; plain without"),
    ] = None
    log_level: Annotated[
        LogLevel, Field(validation_alias="log_level", description="least severity to log")
    ] = "warn"
    domain: Annotated[str, Field(description="domain of the extended resources")] = "aliyun.com"
    annotation_prefix: Annotated[
        str, Field(description="prefix of the first generation's annotations")
    ] = "ALIYUN_COM"
    policy: Annotated[
        Literal["binpack", "spread", "fragmentation"],
        Field(description="card choice where neither pod nor node says"),
    ] = "binpack"
    topology_policy: Annotated[
        Literal["best-effort", "static", "simple", "bandwidth"],
        Field(description="choice of several cards by their links"),
    ] = "best-effort"
    topology_config: Annotated[
        Path | None, Field(description="JSON file with the sets of cards of the static policy")
    ] = None
    unhealthy_configmaps: Annotated[
        bool,
        Field(
            description="read the ConfigMaps of kube-system and withdraw the GPUs that"
            " unhealthy-gpu-<node> lists"
        ),
    ] = False
    stale_after: Annotated[
        float, Field(gt=0, description="refuse to decide when the API server was silent so long")
    ] = 90.0
    assume_ttl: Annotated[
        float, Field(gt=0, description="free a reservation that nothing confirmed for so long")
    ] = 120.0
    bind_deadline: Annotated[
        float, Field(gt=0, description="give up a bind after; below the scheduler's httpTimeout")
    ] = 4.0
    webhook_port: Annotated[
        int | None, Field(ge=0, le=65535, description="admission webhook over TLS; off without")
    ] = None
    webhook_certificates: Annotated[
        Path, Field(description="folder with tls.crt and tls.key, read again when they change")
    ] = Path("/etc/gpushare/webhook")
    webhook_scheduler: Annotated[
        str, Field(description="schedulerName the webhook gives to pods; empty leaves it")
    ] = "gpushare-scheduler"
    certificates_reload: Annotated[
        float, Field(gt=0, description="look for new certificates so often")
    ] = 10.0
    drain_seconds: Annotated[
        float, Field(ge=0, description="stay up, but not ready, so long after SIGTERM")
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
    def _sensible(self) -> "Settings":
        """Complain of what cannot be before anything is served."""
        self.grouping()
        if self.tls_client_ca is not None and self.tls_certificates is None:
            raise ValueError("tls-client-ca needs tls-certificates: without TLS nobody shows any")
        if bool(self.client_names) != (self.tls_client_ca is not None):
            raise ValueError(
                "tls-client-ca and tls-client-names: set both or none, for an authority may"
                " sign certificates of others than the scheduler"
            )
        return self

    def grouping(self) -> Grouping:
        """How several cards are chosen, the configured sets included.

        Raises:
            ValueError: the file of sets cannot be read, or is none.
        """
        if self.topology_config is None:
            return Grouping(self.topology_policy)
        try:
            static = decode_static(self.topology_config.read_bytes())
        except (OSError, TopologyError) as error:
            raise ValueError(f"topology-config: {error}") from error
        return Grouping(self.topology_policy, static)

    @property
    def client_names(self) -> frozenset[str]:
        """Names of the clients that may call the verbs; empty where no certificate is asked for."""
        return frozenset(filter(None, map(str.strip, self.tls_client_names.split(","))))

    @property
    def names(self) -> Names:
        """Resource and annotation names of this cluster."""
        return Names(domain=self.domain, prefix=self.annotation_prefix)
