"""The admission webhook: reachable and trusted, and unable to change anything."""

import base64
import ssl
from pathlib import Path

import helm_python as helm
import pytest
from admission import Conditions
from charting import CHART, NAMESPACE, Object, Rendered, parsed, render
from handshake import laid_out, shake_hands

from gpucore.wire import names

pytestmark = pytest.mark.slow

HOST = f"gpushare-webhook.{NAMESPACE}.svc"


def rendered_values(section: str) -> Object:
    """The chart's defaults of this section."""
    (values,) = parsed((CHART / "values.yaml").read_text())
    found: Object = values[section]
    return found


@pytest.fixture
def rendered() -> Rendered:
    """The chart as it is installed by default."""
    return render()


def call_of(rendered: Rendered) -> Object:
    """How the API server calls the webhook."""
    return dict(rendered.of("MutatingWebhookConfiguration")[0]["webhooks"][0]["clientConfig"])


def test_generated_certificate_is_trusted_by_the_api_server(
    rendered: Rendered, tmp_path: Path
) -> None:
    """The configuration's bundle vouches for the secret's certificate and the Service's name."""
    folder = laid_out(rendered, "-webhook", tmp_path / "pair")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    bundle = base64.b64decode(call_of(rendered)["caBundle"]).decode()
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
    """It is not called for system pods or its own, and its absence lets pods pass."""
    (hook,) = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
    named, labelled = hook["namespaceSelector"]["matchExpressions"]
    assert (named["key"], named["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    exempt = rendered_values("admissionPolicy")["exemptNamespaces"]
    assert set(named["values"]) == {"kube-system", NAMESPACE, *exempt}
    assert labelled == {"key": "gpushare/webhook", "operator": "NotIn", "values": ["disabled"]}
    assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 3)


def test_excluded_namespaces_are_the_installers_choice() -> None:
    """More namespaces can be left out; the release's own always is."""
    found = render(values={"webhook": {"excludedNamespaces": ["kube-system", "batch"]}})
    (hook,) = found.of("MutatingWebhookConfiguration")[0]["webhooks"]
    values = hook["namespaceSelector"]["matchExpressions"][0]["values"]
    assert {"kube-system", "batch", NAMESPACE} <= set(values)


def test_it_can_be_turned_off() -> None:
    """One value removes every object of it."""
    found = render(values={"webhook": {"enabled": False}})
    named = [item for item in found.objects if "webhook" in item["metadata"]["name"]]
    assert named == []


def test_rejecting_while_it_is_down_needs_namespaces_with_names() -> None:
    """Before 1.21 namespaces have no label with their name, so none could be excluded."""
    values = {"webhook": {"failurePolicy": "Fail"}}
    with pytest.raises(helm.HelmError, match="could not start its own pods: set Ignore"):
        render("1.20.2", values)
    (hook,) = render("1.21.0", values).of("MutatingWebhookConfiguration")[0]["webhooks"]
    assert hook["failurePolicy"] == "Fail"


def pod(resource: str = "aliyun.com/gpu-mem", where: str = "containers", **spec: object) -> Object:
    """A pod as the API server sends it, with defaults filled in."""
    requester = {"name": "c", "resources": {"limits": {resource: "2", "cpu": "1"}}}
    found: Object = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "plain"}],
        **spec,
    }
    found[where] = [{"name": "first", "resources": {}}, requester]
    return {"metadata": {"name": "p"}, "spec": found}


SENT = [
    pod(),
    pod("aliyun.com/gpu-core.percentage"),
    pod("aliyun.com/gpu"),
    pod(where="initContainers"),
    pod(schedulerName="gpushare-scheduler"),
    pod(schedulerName=""),
]
NOT_SENT = [
    pod("nvidia.com/gpu"),
    pod("example.com/gpu-mem"),
    pod("cpu", where="initContainers"),
    {"metadata": {}, "spec": {"containers": [{"name": "plain", "resources": {}}]}},
]
ANOTHER = pod(schedulerName="volcano")


@pytest.mark.parametrize("mode", ["second", "extender"])
def test_only_pods_that_request_shares_are_sent(mode: str) -> None:
    """From 1.28 the API server decides by the conditions; no other pod waits for the webhook."""
    sent = Conditions(render(values={"scheduler": {"mode": mode}}))
    assert [sent(item) for item in SENT] == [True] * len(SENT)
    assert [sent(item) for item in NOT_SENT] == [False] * len(NOT_SENT)


@pytest.mark.parametrize("name", sorted({*names.LIMITING_ENV, names.ENV_VISIBLE_DEVICES}))
def test_the_conditions_know_every_guarded_variable(name: str) -> None:
    """Whatever the environment policy refuses is sent to the webhook too."""
    sent = Conditions(render())
    whole = {"name": "x", "env": [{"name": name, "value": "1"}]}
    prefixed = {"name": "x", "envFrom": [{"prefix": name[:-1]}]}
    for box in (whole, prefixed):
        assert sent({"metadata": {}, "spec": {"containers": [box]}})


@pytest.mark.parametrize("where", ["containers", "initContainers", "ephemeralContainers"])
def test_pods_that_choose_gpus_by_a_variable_are_always_sent(where: str) -> None:
    """Another scheduler's name, or no request at all, is no way around the check."""
    chooser = {"name": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    maker = {"name": "x", "envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "NVIDIA_"}]}
    harmless = {"name": "y", "env": [{"name": "PATH", "value": "/bin"}]}
    harmless["envFrom"] = [{"prefix": "APP_"}, {"prefix": ""}, {"configMapRef": {"name": "c"}}]
    sent = Conditions(render())
    spec = {"schedulerName": "volcano", "containers": [{"name": "plain"}]}
    for box in (chooser, maker):
        assert sent({"metadata": {}, "spec": {**spec, where: [box]}})
    assert not sent({"metadata": {}, "spec": {**spec, where: [harmless]}})


@pytest.mark.parametrize("where", ["containers", "initContainers", "ephemeralContainers"])
def test_pods_with_very_many_containers_or_variables_are_always_sent(where: str) -> None:
    """The API server does not look through them itself: the webhook refuses what hides there."""
    sent = Conditions(render())
    for boxes in ([{"name": "x"}] * 1001, [{"name": "x", "env": [{"name": "A"}] * 20_001}]):
        spec = {"schedulerName": "volcano", "containers": [{"name": "plain"}], where: boxes}
        assert sent({"metadata": {}, "spec": spec})


def test_pods_of_other_schedulers_are_left_to_them() -> None:
    """Mode second: a pod that names another scheduler is not even sent. Else all may call us."""
    assert not Conditions(render())(ANOTHER)
    assert Conditions(render(values={"scheduler": {"mode": "extender"}}))(ANOTHER)


def test_conditions_follow_the_values() -> None:
    """Another resource domain and another scheduler name are those that the conditions look for."""
    values = {"resourceDomain": "example.com", "scheduler": {"name": "shares"}}
    sent = Conditions(render(values=values))
    assert sent(pod("example.com/gpu-mem", schedulerName="shares"))
    assert not sent(pod())


@pytest.mark.parametrize(
    ("version", "expected"), [("1.27.9", False), ("1.28.0", True), ("1.28.0-gke.1", True)]
)
def test_older_clusters_know_no_conditions(version: str, expected: bool) -> None:
    """The field is in every API server from 1.28; before, the webhook itself passes other pods."""
    (hook,) = render(version).of("MutatingWebhookConfiguration")[0]["webhooks"]
    assert ("matchConditions" in hook) is expected


def test_one_of_its_pods_stays_through_a_drain() -> None:
    """Its budget selects its pods; with one pod there is none, or no node could be drained."""
    budget = render().one("PodDisruptionBudget", "-webhook")
    assert budget["spec"]["minAvailable"] == 1
    labels = render().one("Deployment", "-webhook")["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for off in ({"replicas": 1}, {"podDisruptionBudget": {"enabled": False}}):
        found = render(values={"webhook": off}).of("PodDisruptionBudget")
        assert [item["metadata"]["name"] for item in found] == ["gpushare-scheduler"]


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
    names = {item["metadata"]["name"] for item in found.of("Secret")}
    assert names == {"gpushare-metrics", "gpushare-authorities"}
    assert call_of(found)["caBundle"] == "YQ=="
    mounted = {each["secret"]["secretName"] for each in dict(found.pods())["webhook"]["volumes"]}
    assert mounted == {"mine", "gpushare-metrics"}
