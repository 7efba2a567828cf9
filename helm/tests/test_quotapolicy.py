"""The policy against whole GPUs at the price of a share in a ResourceQuota."""

import pytest
from admission import TENANT, Policy, held_by, labelled, pod, request
from charting import Object, Rendered, render

from gpucore.wire.names import LABEL_REQUIRE_WHOLE, REQUIRE_WHOLE_DEVICE

pytestmark = pytest.mark.slow

UNITS = "requests.aliyun.com/gpu-mem"
WHOLE = labelled(pod(node=""), LABEL_REQUIRE_WHOLE, REQUIRE_WHOLE_DEVICE)


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart by default."""
    return render("1.33.0")


@pytest.fixture(scope="module")
def policy(rendered: Rendered) -> Policy:
    """The policy as a default install has it."""
    return Policy(rendered, "-quota")


def quota(*counted: str) -> Object:
    """A ResourceQuota that counts these resources."""
    return {"metadata": {"name": "q"}, "spec": {"hard": dict.fromkeys(counted, "1")}}


def made(policy: Policy, item: Object, params: Object) -> str:
    """Why the API server refuses to create the pod; empty where it does not."""
    return policy.refuses(request(TENANT, verb="CREATE"), None, item, params)


@pytest.mark.parametrize("counted", [UNITS, "requests.aliyun.com/gpu-core.percentage"])
def test_no_pod_holds_a_whole_gpu_that_a_quota_counts_as_a_share(
    policy: Policy, counted: str
) -> None:
    """The refusal states what the label does and what to request instead."""
    message = made(policy, WHOLE, quota("pods", counted))
    assert "a ResourceQuota of this namespace counts the requested share only" in message
    assert message.endswith("remove the label, or request aliyun.com/gpu")


@pytest.mark.parametrize("counted", [(), ("pods",), ("requests.aliyun.com/gpu",)])
def test_a_quota_that_counts_no_shares_permits_the_label(
    policy: Policy, counted: tuple[str, ...]
) -> None:
    """A namespace whose shares are not limited gains nothing by it."""
    assert made(policy, WHOLE, quota(*counted)) == ""
    for params in ({"metadata": {"name": "q"}}, {"metadata": {"name": "q"}, "spec": {}}):
        assert made(policy, WHOLE, params) == ""


def test_pods_without_the_label_pass(policy: Policy) -> None:
    """Kubernetes limits their shares by the quota itself; other texts of the label mean nothing."""
    for item in (pod(), labelled(pod(), LABEL_REQUIRE_WHOLE, "other"), labelled(pod(), "team")):
        assert made(policy, item, quota(UNITS)) == ""


def test_no_pod_gets_the_label_later(policy: Policy) -> None:
    """Until a pod is bound its labels may change, through the status too."""
    changed = request(TENANT)
    other = labelled(pod(node=""), LABEL_REQUIRE_WHOLE, "other")
    for before in (pod(node=""), other, labelled(pod(node=""), "team")):
        assert "takes a whole GPU" in policy.refuses(changed, before, WHOLE, quota(UNITS))


def test_a_pod_that_has_the_label_is_still_written(policy: Policy) -> None:
    """A quota may be newer than the pod, whose status kubelet writes."""
    older = held_by(WHOLE, annotations={"team": "a"})
    assert policy.refuses(request(TENANT), WHOLE, older, quota(UNITS)) == ""
    assert policy.refuses(request(TENANT), WHOLE, pod(node=""), quota(UNITS)) == ""


def test_the_resource_domain_is_that_of_the_values() -> None:
    """Pods of a cluster with another domain request other names."""
    policy = Policy(render("1.33.0", {"resourceDomain": "example.com"}), "-quota")
    assert made(policy, WHOLE, quota("requests.example.com/gpu-mem"))
    assert made(policy, WHOLE, quota(UNITS)) == ""


def test_users_named_in_values_are_exempt() -> None:
    """A backup tool restores pods as they were."""
    policy = Policy(render("1.33.0", {"admissionPolicy": {"exemptUsers": ["velero"]}}), "-quota")
    creation = request("velero", verb="CREATE")
    assert policy.refuses(creation, None, WHOLE, quota(UNITS)) == ""
    assert made(policy, WHOLE, quota(UNITS))


def test_every_quota_of_the_namespace_is_a_parameter(rendered: Rendered) -> None:
    """And a namespace without one is no error."""
    spec = rendered.one("ValidatingAdmissionPolicy", "-quota")["spec"]
    assert spec["paramKind"] == {"apiVersion": "v1", "kind": "ResourceQuota"}
    binding = rendered.one("ValidatingAdmissionPolicyBinding", "-quota")["spec"]
    assert binding["paramRef"] == {"selector": {}, "parameterNotFoundAction": "Allow"}


def test_only_pods_with_the_label_wait_for_the_quotas(rendered: Rendered) -> None:
    """An API server that has not listed the quotas yet refuses all that the constraints select."""
    spec = rendered.one("ValidatingAdmissionPolicy", "-quota")["spec"]
    selector = spec["matchConstraints"]["objectSelector"]
    assert selector == {"matchLabels": {LABEL_REQUIRE_WHOLE: REQUIRE_WHOLE_DEVICE}}


def test_an_upgrade_that_keeps_older_values_installs_the_policy() -> None:
    """``--reuse-values`` brings values of a release that did not have this one."""
    rendered = render("1.33.0", {"admissionPolicy": {"quota": None}})
    assert rendered.one("ValidatingAdmissionPolicy", "-quota")


def test_the_policy_can_be_left_out() -> None:
    """For an installer that may not get ResourceQuotas; the other policies stay."""
    rendered = render("1.33.0", {"admissionPolicy": {"quota": False}})
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        found = {item["metadata"]["name"] for item in rendered.of(kind)}
        assert "gpushare-quota" not in found
        assert "gpushare-allocation" in found
