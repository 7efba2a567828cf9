"""Sizes at creation: without the value no right and no flag, with it those that are listed."""

import helm_python as helm
import pytest
from admission import TENANT, Policy, pod, request
from charting import NAMESPACE, Object, Rendered, render

from gpucore.wire.names import MEMORY_LIMIT, ORIGINAL_MEMORY, ORIGINAL_MEMORY_LIMIT

pytestmark = pytest.mark.slow

ENABLED: Object = {"webhook": {"sizing": {"enabled": True}}}
READ = ("namespaces", "resourcequotas", "limitranges")


def webhook_args(rendered: Rendered) -> list[str]:
    """Flags of the webhook about sizes."""
    (container,) = dict(rendered.pods())["webhook"]["containers"]
    return [arg for arg in container["args"] if arg.startswith("--sizing")]


def rights(rendered: Rendered) -> dict[str, list[str]]:
    """Verbs of the webhook's account by resource, through all roles that are bound to it."""
    bindings = [*rendered.of("RoleBinding"), *rendered.of("ClusterRoleBinding")]
    bound = {
        item["roleRef"]["name"]
        for item in bindings
        if any(each["name"] == "gpushare-webhook" for each in item["subjects"])
    }
    roles = [*rendered.of("Role"), *rendered.of("ClusterRole")]
    rules = [rule for role in roles if role["metadata"]["name"] in bound for rule in role["rules"]]
    return {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}


def test_by_default_nothing_is_read_and_no_right_is_granted() -> None:
    """The value is off."""
    rendered = render()
    assert webhook_args(rendered) == []
    assert rights(rendered) == {"nodes": ["list", "watch"], "pods": ["list", "watch"]}
    assert not [role for role in rendered.of("Role") if "sizing" in role["metadata"]["name"]]


def test_with_the_value_the_webhook_may_read_what_it_needs() -> None:
    """Plugins in the release's namespace alone; it records events and changes nothing else."""
    rendered = render(values=ENABLED)
    assert rights(rendered) == {
        **{each: ["list", "watch"] for each in ("nodes", "pods", *READ)},
        "pods/proxy": ["get"],
        "events": ["create"],
    }
    role = rendered.one("Role", "-webhook-sizing")
    assert role["metadata"]["namespace"] == NAMESPACE
    assert [item["resources"] for item in role["rules"]] == [["pods/proxy"]]


def test_the_extender_and_the_plugins_get_no_further_right() -> None:
    """Only the webhook's roles differ."""
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    before, after = (
        {
            (kind, item["metadata"]["name"]): item
            for kind in kinds
            for item in render(values=values).of(kind)
        }
        for values in ({}, ENABLED)
    )
    changed = {name for (_, name), item in after.items() if before.get((_, name)) != item}
    assert changed == {"gpushare-webhook", "gpushare-webhook-sizing"}


def test_interval_and_margin_reach_the_webhook() -> None:
    """And the namespace of the plugins, which the webhook must not guess."""
    sizing = {"enabled": True, "intervalSeconds": 60, "marginPercent": 30}
    assert webhook_args(render(values={"webhook": {"sizing": sizing}})) == [
        "--sizing=true",
        f"--sizing-namespace={NAMESPACE}",
        "--sizing-interval=60",
        "--sizing-margin=30",
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {**ENABLED, "devicePlugin": {"record": {"enabled": False}}},
            "no memory in use is recorded",
        ),
        ({"webhook": {"enabled": False, "sizing": {"enabled": True}}}, "webhook.enabled is false"),
    ],
)
def test_what_it_needs_must_be_enabled(values: Object, words: str) -> None:
    """The install is refused with the value to set."""
    with pytest.raises(helm.HelmError, match=words):
        render(values=values)


def test_a_resized_pod_passes_the_admission_policies() -> None:
    """The request counts as the tenant's, whose pod has the annotations of the webhook."""
    rendered = render(values=ENABLED)
    annotations = {ORIGINAL_MEMORY: "8", ORIGINAL_MEMORY_LIMIT: "12", MEMORY_LIMIT: "7"}
    resized = pod(node="", **annotations)
    for policy in ("-allocation", "-environment"):
        answer = Policy(rendered, policy).refuses(request(TENANT, verb="CREATE"), None, resized)
        assert answer == ""
