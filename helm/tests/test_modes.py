"""The two ways to run the extender, and what only one of them has."""

import helm_python as helm
import pytest
import yaml
from charting import NAMESPACE, Object, Rendered, render

pytestmark = pytest.mark.slow


def extender_mode(**values: Object) -> Rendered:
    """The chart for the cluster's own scheduler."""
    scheduler = {"mode": "extender", **values.pop("scheduler", {})}
    return render(values={"scheduler": scheduler, **values})


def test_second_mode_has_a_scheduler_and_no_service() -> None:
    """kube-scheduler and extender share pods, and nothing else can reach the extender."""
    rendered = render()
    names = [item["name"] for item in dict(rendered.pods())["scheduler"]["containers"]]
    assert names == ["kube-scheduler", "extender"]
    assert [item["metadata"]["name"] for item in rendered.of("Service")] == ["gpushare-webhook"]
    names = [one["schedulerName"] for one in rendered.scheduler_config()["profiles"]]
    assert names == ["gpushare-scheduler", "gpushare-scheduler-burst"]


def test_second_scheduler_elects_its_leader_by_a_lease_of_its_own() -> None:
    """It never takes part in the election of the cluster's scheduler."""
    rendered = render()
    election = rendered.scheduler_config()["leaderElection"]
    assert election["leaderElect"] is True
    assert election["resourceNamespace"] == NAMESPACE
    role = rendered.one("Role", "-leader-election")
    (named,) = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert named["resourceNames"] == [election["resourceName"]]


def test_extender_mode_has_a_service_and_no_scheduler() -> None:
    """The extender stands alone behind a Service that keeps a scheduler with one replica."""
    rendered = extender_mode()
    pod = dict(rendered.pods())["extender"]
    (container,) = pod["containers"]
    service = rendered.one("Service", "-extender")
    assert container["name"] == "extender"
    assert not [flag for flag in container["args"] if flag.startswith("--host")]
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    names = {port["containerPort"]: port["name"] for port in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] == names[39999]
    labels = rendered.one("Deployment", "-extender")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_a_pod_that_is_sent_back_does_not_rest_for_long() -> None:
    """The extender sends a pod back when there is room; the default rests up to ten seconds."""
    found = render().scheduler_config()
    assert (found["podInitialBackoffSeconds"], found["podMaxBackoffSeconds"]) == (1, 1)


def test_extender_mode_grants_nothing_of_a_scheduler() -> None:
    """Its account is bound to the extender's roles alone."""
    rendered = extender_mode()
    bindings = [*rendered.of("ClusterRoleBinding"), *rendered.of("RoleBinding")]
    mine = [item for item in bindings if item["subjects"][0]["name"] == "gpushare-extender"]
    own = {"gpushare-extender", "gpushare-extender-mix"}
    assert {item["roleRef"]["name"] for item in mine} == own


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("", f"gpushare-extender.{NAMESPACE}.svc"),
        ("10.96.7.7", "10.96.7.7"),
        ("fd00:10:96::7", "[fd00:10:96::7]"),
    ],
)
def test_extender_mode_offers_the_clusters_scheduler_its_configuration(
    address: str, host: str
) -> None:
    """A ConfigMap holds what the cluster's scheduler needs, by name or by a fixed address."""
    rendered = extender_mode(extender={"service": {"clusterIP": address}})
    text = rendered.one("ConfigMap", "-config")["data"]["config.yaml"]
    config = yaml.safe_load(text)
    url = f"https://{host}:39999/gpushare-scheduler"
    assert [each["urlPrefix"] for each in config["extenders"]] == [url]
    assert rendered.one("Service", "-extender")["spec"].get("clusterIP", "") == address
    assert "leaderElection" not in text


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"scheduler": {"name": "default-scheduler"}}, "two schedulers of one name"),
        ({"extender": {"service": {"clusterIP": "10.96.7.7"}}}, "has no Service"),
        ({"extender": {"port": 10259}}, "kube-scheduler beside it uses"),
        ({"webhook": {"enabled": True, "port": 39999}}, "are the same"),
        ({"extender": {"metricsPort": 39999}}, "are the same"),
        ({"extender": {"tls": {"secretName": "mine"}}}, "set both or none"),
        ({"webhook": {"enabled": True, "certificate": {"secretName": "s"}}}, "no CA to trust"),
        ({"webhook": {"enabled": True, "certificate": {"caBundle": "YQ=="}}}, "set both or none"),
    ],
)
def test_impossible_combination_is_refused_with_a_sentence(values: Object, sentence: str) -> None:
    """Values that are right alone and wrong together are refused, and the message states why."""
    with pytest.raises(helm.HelmError, match=sentence):
        render(values=values)


def test_the_lease_is_the_values_own() -> None:
    """How long nobody leads after a loss is the operator's to say."""
    election = {"leaseSeconds": 8, "renewSeconds": 6, "retrySeconds": 1}
    found = render(values={"scheduler": {"leaderElection": election}}).scheduler_config()
    chosen = {key: found["leaderElection"][key] for key in ("leaseDuration", "renewDeadline")}
    assert chosen == {"leaseDuration": "8s", "renewDeadline": "6s"}
    assert found["leaderElection"]["retryPeriod"] == "1s"


@pytest.mark.parametrize("wrong", [{"renewSeconds": 15}, {"retrySeconds": 10}])
def test_a_lease_that_kube_scheduler_would_not_start_with_is_refused(wrong: Object) -> None:
    """The sentence names the three figures."""
    with pytest.raises(helm.HelmError, match="each must be less than the next"):
        render(values={"scheduler": {"leaderElection": wrong}})


def test_the_part_of_the_nodes_that_is_evaluated_can_be_set() -> None:
    """By default all nodes are evaluated; 0 leaves it to kube-scheduler."""
    assert render().scheduler_config()["percentageOfNodesToScore"] == 100
    found = render(values={"scheduler": {"percentageOfNodesToScore": 0}}).scheduler_config()
    assert "percentageOfNodesToScore" not in found


def profile(version: str = "1.34.0", **scheduler: Object) -> Object:
    """The exact profile of the second scheduler."""
    found, *_ = render(version, {"scheduler": scheduler}).scheduler_config()["profiles"]
    return dict(found)


@pytest.mark.parametrize("version", ["1.20.2", "1.22.0", "1.23.0", "1.34.0"])
def test_scores_that_know_no_gpu_do_not_count(version: str) -> None:
    """In every version of the configuration, under the names that its plugins have there."""
    found = profile(version)
    fit = "NodeResourcesLeastAllocated" if version == "1.20.2" else "NodeResourcesFit"
    off = {item["name"] for item in found["plugins"]["score"]["disabled"]}
    assert off == {fit, "NodeResourcesBalancedAllocation", "ImageLocality"}
    assert not found["plugins"]["score"]["enabled"]
    (spread,) = found["pluginConfig"]
    assert spread["args"] == {"defaultingType": "List", "defaultConstraints": []}


def test_scores_get_their_weight_back() -> None:
    """A weight in the values replaces the plugin's own; the default constraints can be kept."""
    weights = {"NodeResourcesFit": 1, "InterPodAffinity": 20}
    found = profile(scoreWeights=weights, defaultTopologySpread=True)
    on = {item["name"]: item["weight"] for item in found["plugins"]["score"]["enabled"]}
    assert on == weights
    off = {item["name"] for item in found["plugins"]["score"]["disabled"]}
    assert off == {*weights, "NodeResourcesBalancedAllocation", "ImageLocality"}
    assert "pluginConfig" not in found
