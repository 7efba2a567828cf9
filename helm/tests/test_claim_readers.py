"""GPUs as claims: what the extender reads, and what the webhook converts."""

import helm_python as helm
import pytest
from charting import Object, Rendered, render

pytestmark = pytest.mark.slow

NEWEST = "1.36.0"


def rules(rendered: Rendered, name: str) -> list[Object]:
    """The rules of a cluster role that are about claims."""
    found = rendered.one("ClusterRole", name)["rules"]
    return [rule for rule in found if rule["apiGroups"] == ["resource.k8s.io"]]


def hooks(rendered: Rendered) -> list[Object]:
    """The webhooks of the chart."""
    found: list[Object] = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
    return found


def selected(hook: Object) -> list[Object]:
    """Its rules about the label of the API."""
    expressions = hook["namespaceSelector"]["matchExpressions"]
    return [each for each in expressions if each["key"] == "gpushare/api"]


def test_by_default_nothing_reads_or_converts_claims() -> None:
    """A cluster without the API is served as before."""
    rendered = render()
    assert rules(rendered, "-extender") == []
    assert rules(rendered, "-webhook") == []
    (hook,) = hooks(rendered)
    assert (hook["clientConfig"]["service"]["path"], selected(hook)) == ("/admit", [])


def test_the_extender_reads_claims_where_requested() -> None:
    """It can list and watch, and write nothing; templates and classes to nominate nodes."""
    rendered = render(NEWEST, {"extender": {"claims": True, "nominate": "off"}})
    assert rules(rendered, "-extender")[0]["resources"] == ["resourceslices", "resourceclaims"]
    rendered = render(NEWEST, {"extender": {"claims": True}})
    (container,) = [
        each
        for each in dict(rendered.pods())["scheduler"]["containers"]
        if each["name"] == "extender"
    ]
    assert "--claims=true" in container["args"]
    assert rules(rendered, "-extender") == [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": [
                "resourceslices",
                "resourceclaims",
                "resourceclaimtemplates",
                "deviceclasses",
            ],
            "verbs": ["list", "watch"],
        }
    ]


@pytest.mark.parametrize(
    ("mode", "plain", "claims"),
    [
        ("namespaces", ("NotIn", ["claims"]), ("In", ["claims"])),
        ("all", ("In", ["devices"]), ("NotIn", ["devices"])),
    ],
)
def test_every_pod_is_sent_to_one_of_the_two_webhooks(
    mode: str, plain: tuple[str, list[str]], claims: tuple[str, list[str]]
) -> None:
    """By the label of its namespace, which a tenant cannot write."""
    rendered = render(NEWEST, {"claims": {"enabled": True}, "webhook": {"claims": mode}})
    first, second = hooks(rendered)
    assert first["clientConfig"]["service"]["path"] == "/admit"
    assert second["clientConfig"]["service"]["path"] == "/admit-claims"
    assert first["name"] != second["name"]
    for hook, wanted in ((first, plain), (second, claims)):
        (rule,) = selected(hook)
        assert (rule["operator"], rule["values"]) == wanted
        assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")


def test_the_webhook_may_create_templates_and_no_claims() -> None:
    """The least that it needs; it reads them by list, not by watch."""
    values = {
        "webhook": {"claims": "namespaces"},
        "devicePlugin": {"memoryUnit": "256MiB"},
        "claims": {"enabled": True, "deviceClass": "shares"},
    }
    rendered = render(NEWEST, values)
    (container,) = dict(rendered.pods())["webhook"]["containers"]
    flags = {"--claims-convert=true", "--claims-unit=256MiB", "--claims-class=shares"}
    assert flags <= set(container["args"])
    assert rules(rendered, "-webhook") == [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaimtemplates"],
            "verbs": ["list", "create", "delete"],
        }
    ]


@pytest.mark.parametrize("values", [{"extender": {"claims": True}}, {"webhook": {"claims": "all"}}])
def test_an_older_cluster_is_refused_with_a_sentence(values: Object) -> None:
    """Consumable capacity is on by default from 1.36 on."""
    with pytest.raises(helm.HelmError, match=r"older than Kubernetes 1\.36"):
        render("1.35.2", values)


@pytest.mark.parametrize("mode", ["namespaces", "all"])
def test_pods_are_not_converted_where_no_node_can_offer_claims(mode: str) -> None:
    """They would name a DeviceClass that the release does not create, and stay pending."""
    values = {"webhook": {"claims": mode}}
    with pytest.raises(helm.HelmError, match=r"webhook\.claims is set.*set claims\.enabled=true"):
        render(NEWEST, values)
    for offering in ({"claims": {"enabled": True}}, {"api": "claims"}, {"api": "auto"}):
        rendered = render(NEWEST, {**values, **offering})
        (container,) = dict(rendered.pods())["webhook"]["containers"]
        classes = {item["metadata"]["name"] for item in rendered.of("DeviceClass")}
        named = [flag for flag in container["args"] if flag.startswith("--claims-class=")]
        assert [flag.partition("=")[2] in classes for flag in named] == [True]
