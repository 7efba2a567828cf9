"""Metrics, health and readiness leave every pod under TLS; Prometheus has the CA to verify it."""

import ssl
from pathlib import Path

import pytest
from charting import NAMESPACE, Object, Rendered, render
from handshake import filled, laid_out, shake_hands

SECRET = "gpushare-metrics"
HOST = f"{SECRET}.{NAMESPACE}.svc"
ALL: Object = {"webhook": {"enabled": True}, "dashboard": {"enabled": True}}
SERVING = {
    "extender": ("--metrics-certificates={}",),
    "webhook": ("--metrics-certificates={}",),
    "device-plugin": ("--tls-certificates={}",),
    "kube-scheduler": ("--tls-cert-file={}/tls.crt", "--tls-private-key-file={}/tls.key"),
}


def stack(mode: str = "second", **tls: bool | str) -> Rendered:
    """Everything there is, with monitors."""
    monitoring = {"enabled": True, "tls": tls}
    return render(values={**ALL, "scheduler": {"mode": mode}, "monitoring": monitoring})


def containers(rendered: Rendered) -> dict[str, tuple[Object, Object]]:
    """Pod and container by the container's name."""
    return {each["name"]: (pod, each) for _, pod in rendered.pods() for each in pod["containers"]}


def endpoints(rendered: Rendered) -> list[Object]:
    """How each monitor scrapes its pods."""
    found = [*rendered.of("PodMonitor"), *rendered.of("ServiceMonitor")]
    return [
        end
        for item in found
        for end in item["spec"].get("podMetricsEndpoints") or item["spec"]["endpoints"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "names"), [("second", set(SERVING)), ("extender", set(SERVING) - {"kube-scheduler"})]
)
def test_every_metrics_port_has_the_certificate(mode: str, names: set[str]) -> None:
    """Flags, mount and secret agree in every container that serves metrics."""
    found = containers(stack(mode))
    assert names == set(found) - {"dashboard"}
    for name in names:
        pod, container = found[name]
        (folder,) = (
            each["mountPath"]
            for each in container["volumeMounts"]
            if each["name"] == "metrics-certificate"
        )
        arguments = [*container.get("args", ()), *container.get("command", ())]
        assert {flag.format(folder) for flag in SERVING[name]} <= set(arguments)
        volumes = {volume["name"]: volume.get("secret") for volume in pod["volumes"]}
        assert volumes["metrics-certificate"] == filled(SECRET)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
@pytest.mark.parametrize("enabled", [True, False])
def test_probes_speak_as_the_port_does(mode: str, enabled: bool) -> None:
    """The kubelet probes over TLS where the port speaks it; else no pod would ever be ready."""
    found = containers(stack(mode, enabled=enabled))
    names = ("extender", "webhook", "device-plugin")
    schemes = {
        found[name][1][probe]["httpGet"]["scheme"]
        for name in names
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert schemes == {"HTTPS" if enabled else "HTTP"}


def test_prometheus_can_check_who_answers(tmp_path: Path) -> None:
    """The authority and the name that each monitor gives are those of the generated pair."""
    rendered = stack()
    folder = laid_out(rendered, SECRET, tmp_path / "pair")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    expected = {"ca": {"secret": {"name": SECRET, "key": "ca.crt"}}, "serverName": HOST}
    found = endpoints(rendered)
    assert len(found) == 4
    assert [end for end in found if end["scheme"] != "https" or end["tlsConfig"] != expected] == []
    shake_hands(server, ssl.create_default_context(cafile=folder / "ca.crt"), host=HOST)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ssl.create_default_context(), host=HOST)


@pytest.mark.slow
def test_an_own_secret_replaces_the_generated_one() -> None:
    """A pair from elsewhere is mounted and believed, and none is generated."""
    rendered = stack(secretName="mine")
    assert SECRET not in {item["metadata"]["name"] for item in rendered.of("Secret")}
    assert {end["tlsConfig"]["ca"]["secret"]["name"] for end in endpoints(rendered)} == {"mine"}
    for name in SERVING:
        pod, _ = containers(rendered)[name]
        assert "mine" in {each.get("secret", {}).get("secretName") for each in pod["volumes"]}


def test_plain_metrics_must_be_requested() -> None:
    """Without TLS nothing of it is left but kube-scheduler's own, which nobody can check."""
    rendered = stack(enabled=False)
    assert SECRET not in {item["metadata"]["name"] for item in rendered.of("Secret")}
    for pod, container in containers(rendered).values():
        arguments = [*container.get("args", ()), *container.get("command", ())]
        assert not [
            flag for flag in arguments if "metrics-certificates" in flag or "tls-cert-f" in flag
        ]
        assert "metrics-certificate" not in {each["name"] for each in pod.get("volumes", ())}
    secured = [end for end in endpoints(rendered) if "tlsConfig" in end]
    assert [end["tlsConfig"] for end in secured] == [{"insecureSkipVerify": True}]
