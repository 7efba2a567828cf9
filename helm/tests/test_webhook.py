"""The admission webhook: reachable and trusted, and unable to change anything."""

import base64
import ssl
from pathlib import Path

import pytest
from charting import CHART, NAMESPACE, Object, Rendered, parsed, render
from handshake import shake_hands

HOST = f"gpushare-webhook.{NAMESPACE}.svc"


def rendered_values(section: str) -> Object:
    """The chart's defaults of this section."""
    (values,) = parsed((CHART / "values.yaml").read_text())
    found: Object = values[section]
    return found


@pytest.fixture
def rendered() -> Rendered:
    """The chart with the webhook."""
    return render(values={"webhook": {"enabled": True}})


def test_generated_certificate_is_trusted_by_the_api_server(
    rendered: Rendered, tmp_path: Path
) -> None:
    """The configuration's bundle vouches for the secret's certificate and the Service's name."""
    data = rendered.one("Secret", "-webhook")["data"]
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(base64.b64decode(data[name]))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    call = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"][0]["clientConfig"]
    bundle = base64.b64decode(call["caBundle"]).decode()
    shake_hands(server, ssl.create_default_context(cadata=bundle), host=HOST)


def test_configuration_calls_the_service(rendered: Rendered) -> None:
    """What the API server calls is the Service, and the Service leads to the listening port."""
    (hook,) = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
    service = rendered.one("Service", "-webhook")
    (container,) = dict(rendered.pods())["webhook"]["containers"]
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert hook["clientConfig"]["service"]["name"] == service["metadata"]["name"]
    assert service["spec"]["ports"][0]["port"] == 443
    assert ports[service["spec"]["ports"][0]["targetPort"]] == 9443
    assert "--webhook-port=9443" in container["args"]


def test_it_never_stops_the_cluster_from_starting(rendered: Rendered) -> None:
    """It is not asked about system pods or its own, and its absence lets pods pass."""
    (hook,) = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
    (expression,) = hook["namespaceSelector"]["matchExpressions"]
    assert expression["operator"] == "NotIn"
    exempt = rendered_values("admissionPolicy")["exemptNamespaces"]
    assert set(expression["values"]) == {"kube-system", NAMESPACE, *exempt}
    assert hook["failurePolicy"] == "Ignore"


def test_it_may_read_and_not_bind(rendered: Rendered) -> None:
    """What the whole network reaches has no right to change anything."""
    role = rendered.one("ClusterRole", "-webhook")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


@pytest.mark.parametrize(("mode", "name"), [("second", "gpushare-scheduler"), ("extender", "")])
def test_pods_are_sent_to_the_second_scheduler_where_there_is_one(mode: str, name: str) -> None:
    """With the cluster's own scheduler in use pods keep the name they have."""
    values: Object = {"webhook": {"enabled": True}, "scheduler": {"mode": mode}}
    (container,) = dict(render(values=values).pods())["webhook"]["containers"]
    assert f"--webhook-scheduler={name}" in container["args"]


def test_own_secret_replaces_the_generated_one() -> None:
    """A certificate from elsewhere is mounted, and none is generated."""
    certificate = {"secretName": "mine", "caBundle": "YQ=="}
    found = render(values={"webhook": {"enabled": True, "certificate": certificate}})
    assert [item["metadata"]["name"] for item in found.of("Secret")] == ["gpushare-metrics"]
    mounted = {each["secret"]["secretName"] for each in dict(found.pods())["webhook"]["volumes"]}
    assert mounted == {"mine", "gpushare-metrics"}
