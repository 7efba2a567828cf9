"""Mode extender: calls over the network are encrypted, and only the scheduler may make them."""

import base64
import re
import ssl
import subprocess
from pathlib import Path

import helm_python as helm
import pytest
import yaml
from charting import NAMESPACE, Object, Rendered, render
from handshake import filled, issue, laid_out, shake_hands

NAME = "gpushare-extender"
HOST = f"{NAME}.{NAMESPACE}.svc"


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart for the cluster's own scheduler."""
    return render(values={"scheduler": {"mode": "extender"}})


def extender_entry(rendered: Rendered) -> Object:
    """How the cluster's scheduler is to call."""
    config = rendered.one("ConfigMap", "-config")
    (entry,) = yaml.safe_load(config["data"]["config.yaml"])["extenders"]
    return dict(entry)


def secrets(rendered: Rendered) -> set[str]:
    """Names of all secrets that the Job fills, but that of the authorities."""
    found = {item["metadata"]["name"] for item in rendered.of("Secret")}
    return found - {"gpushare-authorities"}


def server_side(folder: Path) -> ssl.SSLContext:
    """The extender's side, as its two flags set it up."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server.load_verify_locations(folder / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    return server


def test_the_generated_pairs_trust_each_other(rendered: Rendered, tmp_path: Path) -> None:
    """The scheduler's secret opens the extender's door, and the name is the one it is held to."""
    server = laid_out(rendered, NAME, tmp_path / "server")
    caller = laid_out(rendered, f"{NAME}-client", tmp_path / "client")
    client = ssl.create_default_context(cafile=caller / "ca.crt")
    client.load_cert_chain(caller / "tls.crt", caller / "tls.key")
    assert extender_entry(rendered)["tlsConfig"]["serverName"] == HOST
    shake_hands(server_side(server), client, host=HOST)


def test_a_stranger_is_not_let_in(rendered: Rendered, tmp_path: Path) -> None:
    """Who has no certificate of the authority cannot call a verb, so cannot bind."""
    server = laid_out(rendered, NAME, tmp_path / "server")
    stranger = ssl.create_default_context(cafile=server / "ca.crt")
    with pytest.raises(ssl.SSLError):
        shake_hands(server_side(server), stranger, host=HOST)


def test_the_extender_gets_its_certificates(rendered: Rendered) -> None:
    """Flags and mount agree, and probes go to the port that requests no certificate."""
    pod = dict(rendered.pods())["extender"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert f"--tls-certificates={mounts['certificate']}" in container["args"]
    assert f"--tls-client-ca={mounts['certificate']}/ca.crt" in container["args"]
    assert f"--tls-client-names={NAME}-client" in container["args"]
    volumes = {volume["name"]: volume.get("secret") for volume in pod["volumes"]}
    assert volumes["certificate"] == filled(NAME)
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    assert {container[probe]["httpGet"]["port"] for probe in probes} == {"metrics"}


@pytest.mark.slow
def test_own_secrets_replace_the_generated_ones() -> None:
    """Certificates from elsewhere are mounted and named, and none is generated."""
    names = ["kube-scheduler", "system:kube-scheduler"]
    tls = {"secretName": "mine", "clientSecretName": "theirs", "clientNames": names}
    found = render(values={"scheduler": {"mode": "extender"}, "extender": {"tls": tls}})
    config = found.one("ConfigMap", "-config")
    assert secrets(found) == {"gpushare-metrics", "gpushare-webhook"}
    assert config["data"]["credentials"] == "theirs"
    mounted = {each["secret"]["secretName"] for each in dict(found.pods())["extender"]["volumes"]}
    assert mounted == {"mine", "gpushare-metrics"}
    (container,) = dict(found.pods())["extender"]["containers"]
    assert "--tls-client-names=kube-scheduler,system:kube-scheduler" in container["args"]


@pytest.mark.parametrize("source", ["job", "cert-manager"])
def test_further_client_names_leave_the_certificate_of_the_scheduler_accepted(source: str) -> None:
    """The configuration names that certificate: refused, every pod with a share stays pending."""
    certificates = {"source": source, "issuerRef": {"name": "ca"}}
    extender = {"tls": {"clientNames": ["admin"]}}
    found = render(
        values={
            "scheduler": {"mode": "extender"},
            "extender": extender,
            "certificates": certificates,
        }
    )
    assert found.one("ConfigMap", "-config")["data"]["credentials"] == f"{NAME}-client"
    (container,) = dict(found.pods())["extender"]["containers"]
    assert f"--tls-client-names={NAME}-client,admin" in container["args"]


def test_a_client_name_with_a_colon_stays_a_text() -> None:
    """An argument that is a YAML mapping would be refused by the API server."""
    tls = {"secretName": "mine", "clientSecretName": "theirs", "clientNames": ["CN: x"]}
    found = render(values={"scheduler": {"mode": "extender"}, "extender": {"tls": tls}})
    (container,) = dict(found.pods())["extender"]["containers"]
    assert "--tls-client-names=CN: x" in container["args"]


def test_the_generated_certificate_has_the_name_that_may_call(rendered: Rendered) -> None:
    """The extender accepts the scheduler's certificate and not its own, of the same authority."""
    issue(rendered)
    secret = next(s for s in rendered.of("Secret") if s["metadata"]["name"] == f"{NAME}-client")
    shown = subprocess.run(
        ("openssl", "x509", "-noout", "-subject", "-nameopt", "multiline"),
        input=base64.b64decode(secret["data"]["tls.crt"]),
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout.decode()
    assert re.search(rf"commonName\s+= {NAME}-client$", shown, re.MULTILINE)


def test_own_certificates_are_not_accepted_without_a_name() -> None:
    """An authority from elsewhere has signed for others too."""
    tls = {"secretName": "mine", "clientSecretName": "theirs"}
    with pytest.raises(helm.HelmError, match=r"set extender\.tls\.clientNames"):
        render(values={"scheduler": {"mode": "extender"}, "extender": {"tls": tls}})


def test_plain_calls_must_be_requested() -> None:
    """Without TLS nothing of it is left: no secret, no flag, no mount."""
    plain = {"tls": {"enabled": False}}
    values = {"scheduler": {"mode": "extender"}, "extender": plain, "monitoring": plain}
    found = render(values=values)
    entry = extender_entry(found)
    assert secrets(found) == {"gpushare-webhook"}
    assert (entry["enableHTTPS"], "tlsConfig" in entry) == (False, False)
    assert entry["urlPrefix"].startswith("http://")
    assert "volumes" not in dict(found.pods())["extender"]


def test_beside_the_scheduler_there_is_no_certificate() -> None:
    """In mode second the calls never leave the pod."""
    assert secrets(render()) == {"gpushare-metrics", "gpushare-webhook"}
