"""The CronJob of idle shares: off by default, reads by default, evicts only where requested."""

from typing import Any

import pytest
from admission import Policy, held_by, pod, request
from charting import NAMESPACE, Object, Rendered, render
from test_security import granted

from gpucore.wire.names import IDLE_NOTICE

pytestmark = pytest.mark.slow

READS = {
    ("", "nodes"): {"list"},
    ("", "pods"): {"list"},
    ("resource.k8s.io", "resourceslices"): {"list"},
    ("resource.k8s.io", "resourceclaims"): {"list"},
}
PROXY = {("", "pods/proxy"): {"get"}}


def chart(**values: Any) -> Rendered:
    """The chart with its CronJob."""
    return render("1.33.0", {"idle": {"schedule": "30 * * * *", **values}})


def arguments(rendered: Rendered) -> list[str]:
    """The flags of the job."""
    found = dict(rendered.ending_pods())["gpushare-idle"]
    return list(found["containers"][0]["args"])


def test_it_is_off_by_default() -> None:
    """Nobody's pods are evicted by an upgrade of the chart."""
    names = [item["metadata"]["name"] for item in render().objects]
    assert not [name for name in names if name.endswith("-idle")]


def test_it_reads_only_by_default() -> None:
    """Without ``evict`` it has neither the flag nor a right to change anything."""
    rendered = chart()
    assert granted(rendered.one("ClusterRole", "-idle")) == READS
    assert granted(rendered.one("Role", "-idle")) == PROXY
    assert rendered.one("Role", "-idle")["metadata"]["namespace"] == NAMESPACE
    assert arguments(rendered) == [
        "idle",
        "--all-namespaces",
        "--dry-run",
        "--for=12h",
        "--grace=24h",
        "--max-evictions=10",
        "--max-notices=50",
        f"--plugin-namespace={NAMESPACE}",
        f"--lease={NAMESPACE}/gpushare-idle",
        "--resource-domain=aliyun.com",
        "--annotation-prefix=ALIYUN_COM",
    ]


def test_with_evict_it_may_evict_and_patch_pods() -> None:
    """Pods are not deleted; of Leases, its own one."""
    rendered = chart(evict=True, barePods=True)
    changes = {("", "pods/eviction"): {"create"}, ("", "events"): {"create"}}
    patches = {("", "pods"): {"list", "patch"}}
    assert granted(rendered.one("ClusterRole", "-idle")) == READS | changes | patches
    lease = next(rule for rule in rendered.one("Role", "-idle")["rules"] if "leases" in str(rule))
    assert lease["resourceNames"] == ["gpushare-idle"]
    assert lease["verbs"] == ["get", "patch"]
    assert rendered.one("Lease", "-idle")["metadata"]["namespace"] == NAMESPACE
    assert {"--evict", "--bare-pods"} < set(arguments(rendered))


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (held_by(pod(team="a"), annotations={"team": "a", IDLE_NOTICE: "{}"}), ""),
        (pod(team="b"), "nothing of a pod but"),
        (pod(), "nothing of a pod but"),
        (pod(team="a", x="1"), "nothing of a pod but"),
        (pod(image="evil", team="a"), "nothing of a pod but"),
        (held_by(pod(team="a"), labels={"role": "y"}), "nothing of a pod but"),
        (held_by(pod(team="a"), finalizers=["evil/stay"]), "no finalizers"),
        (held_by(pod(team="a"), ownerReferences=[{"kind": "Node", "uid": "0"}]), "owner"),
    ],
)
def test_a_stolen_token_writes_the_notice_and_nothing_else(after: Object, sentence: str) -> None:
    """The right to patch pods would permit other images and labels."""
    policy = Policy(chart(evict=True), "-idle")
    user = f"system:serviceaccount:{NAMESPACE}:gpushare-idle"
    found = policy.refuses(request(user), pod(team="a"), after)
    assert sentence in found
    assert bool(sentence) == bool(found)
    assert policy.refuses(request("jane"), pod(team="a"), after) == ""


def test_its_right_is_limited_also_where_other_policies_only_warn() -> None:
    """Patching all pods would be more than it needs."""
    values = {"idle": {"schedule": "30 * * * *", "evict": True}}
    found = render("1.33.0", {**values, "admissionPolicy": {"action": "Warn"}})
    binding = found.one("ValidatingAdmissionPolicyBinding", "-idle")
    assert binding["spec"]["validationActions"] == ["Deny"]


def test_without_admission_policies_it_does_not_evict() -> None:
    """Its right could not be limited."""
    values = {"idle": {"schedule": "30 * * * *", "evict": True}}
    with pytest.raises(Exception, match=r"idle\.evict is set"):
        render("1.29.0", values)
    with pytest.raises(Exception, match=r"idle\.evict is set"):
        render("1.33.0", {**values, "admissionPolicy": {"enabled": False}})


def test_a_span_of_another_form_is_refused() -> None:
    """As the command would, a day later."""
    with pytest.raises(Exception, match="grace"):
        chart(grace="1 day")
