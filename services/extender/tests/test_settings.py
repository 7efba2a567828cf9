"""Settings of the extender: defaults, and combinations that cannot work."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gpuextender.settings import ExtenderSettings


def test_defaults_are_those_of_the_pages() -> None:
    """Reservations outlive a bind, and a bind ends before the scheduler's usual time-out."""
    found = ExtenderSettings()
    assert (found.port, found.host, found.metrics_host) == (39999, "", "")
    assert (found.stale_after, found.assume_ttl, found.bind_deadline) == (90.0, 120.0, 4.0)
    assert (found.drain_seconds, found.certificates_reload) == (0.0, 10.0)
    assert (found.policy, found.topology_policy, found.log_level) == (
        "binpack",
        "best-effort",
        "warn",
    )
    assert found.bind_deadline < found.assume_ttl
    assert found.unhealthy_configmaps is False
    off = (found.metrics_port, found.webhook_port, found.tls_certificates, found.tls_client_ca)
    assert off == (None, None, None, None)
    assert found.webhook_scheduler == "gpushare-scheduler"
    assert found.webhook_certificates == Path("/etc/gpushare/webhook")
    assert (found.names.gpu_mem, found.names.mem_idx) == (
        "aliyun.com/gpu-mem",
        "ALIYUN_COM_GPU_MEM_IDX",
    )


@pytest.mark.parametrize("name", ["metrics_port", "webhook_port"])
def test_what_kubernetes_injects_for_a_service_is_no_port(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A Service gpushare-webhook in the namespace would otherwise stop the process."""
    variable = f"GPUSHARE_{name.upper()}"
    monkeypatch.setenv(variable, "tcp://10.0.0.1:443")
    assert getattr(ExtenderSettings(), name) is None
    monkeypatch.setenv(variable, "9443")
    assert getattr(ExtenderSettings(), name) == 9443


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"tls_client_ca": "ca", "tls_client_names": "s"}, "needs tls-certificates"),
        ({"tls_certificates": "d", "tls_client_ca": "ca"}, "set both or none"),
        ({"tls_certificates": "d", "tls_client_ca": "ca", "tls_client_names": " ,"}, "set both"),
        ({"tls_certificates": "d", "tls_client_names": "s"}, "set both or none"),
        ({"stale_after": 0}, "stale_after"),
        ({"assume_ttl": 0}, "assume_ttl"),
        ({"bind_deadline": 0}, "bind_deadline"),
        ({"drain_seconds": -1}, "drain_seconds"),
        ({"metrics_port": 65536}, "metrics_port"),
        ({"webhook_port": -1}, "webhook_port"),
        ({"policy": "worst"}, "policy"),
        ({"topology_config": "/nowhere/sets.json"}, "topology-config"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(values: dict[str, Any], complaint: str) -> None:
    """Nothing is served with settings that contradict each other."""
    with pytest.raises(ValidationError, match=complaint):
        ExtenderSettings(**values)


def test_names_of_clients_are_a_list() -> None:
    """Spaces and empty places count for nothing."""
    found = ExtenderSettings(tls_certificates="d", tls_client_ca="ca", tls_client_names=" a, ,b,")
    assert found.client_names == {"a", "b"}
    assert ExtenderSettings().client_names == frozenset()


def test_the_original_spelling_of_the_topology_policy_is_read() -> None:
    """The topology extender of 2019 wrote an underscore."""
    assert ExtenderSettings(topology_policy="best_effort").topology_policy == "best-effort"
