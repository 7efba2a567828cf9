"""Which requests the API server shows to the admission policies and to the webhook."""

import pytest
from charting import Object, Rendered, render

POLICIES: dict[str, list[tuple[list[str], list[str]]]] = {
    "allocation": [(["pods", "pods/status"], ["CREATE", "UPDATE"])],
    "device-plugin": [(["pods", "nodes", "nodes/status"], ["UPDATE"])],
    "extender": [(["pods", "pods/status"], ["UPDATE"])],
    "environment": [
        (["pods"], ["CREATE"]),
        (["pods/ephemeralcontainers"], ["UPDATE"]),
    ],
    "quota": [(["pods", "pods/status"], ["CREATE", "UPDATE"])],
    "certificates": [(["mutatingwebhookconfigurations"], ["UPDATE"])],
}
"""Resources and operations of each; a subresource is not part of its resource."""
ACTIONS = "validationActions"
CORE = {"apiGroups": [""], "apiVersions": ["v1"]}
GROUPS = {"certificates": {"apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"]}}
"""Of a policy that is about another group."""


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart by default."""
    return render()


def policy(rendered: Rendered, name: str) -> Object:
    """The specification of one policy."""
    found: Object = rendered.one("ValidatingAdmissionPolicy", f"gpushare-{name}")["spec"]
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_sees_every_way_to_write(rendered: Rendered, name: str) -> None:
    """A subresource that is left out would be a way around the policy."""
    rules = policy(rendered, name)["matchConstraints"]["resourceRules"]
    assert rules == [
        {**GROUPS.get(name, CORE), "resources": resources, "operations": operations}
        for resources, operations in POLICIES[name]
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_policy_cannot_judge_is_refused(rendered: Rendered, name: str) -> None:
    """An expression that fails must not let a request pass."""
    assert policy(rendered, name)["failurePolicy"] == "Fail"
    for rule in policy(rendered, name)["validations"]:
        assert rule["reason"] == "Forbidden"


@pytest.mark.slow
@pytest.mark.parametrize("action", ["Deny", "Warn", "Audit"])
def test_each_policy_is_in_force(action: str) -> None:
    """A policy without a binding does nothing; what it does is the operator's choice."""
    found = render(values={"admissionPolicy": {"action": action}})
    bindings = {
        item["metadata"]["name"]: {key: item["spec"][key] for key in ("policyName", ACTIONS)}
        for item in found.of("ValidatingAdmissionPolicyBinding")
    }
    assert bindings == {
        f"gpushare-{name}": {"policyName": f"gpushare-{name}", ACTIONS: [action]}
        for name in POLICIES
    }


def test_policies_deny_by_default(rendered: Rendered) -> None:
    """Warnings alone would keep nobody out."""
    for item in rendered.of("ValidatingAdmissionPolicyBinding"):
        assert item["spec"]["validationActions"] == ["Deny"]


def test_policies_are_about_the_accounts_of_the_chart() -> None:
    """The account that the policy names is the one that the pods run as, in both modes."""
    for mode, component in (("second", "scheduler"), ("extender", "extender")):
        found = render(values={"scheduler": {"mode": mode}})
        pods = dict(found.pods())
        (job,) = found.of("Job")
        for name, account in (
            ("extender", pods[component]["serviceAccountName"]),
            ("device-plugin", pods["device-plugin"]["serviceAccountName"]),
            ("certificates", job["spec"]["template"]["spec"]["serviceAccountName"]),
        ):
            (condition,) = policy(found, name)["matchConditions"]
            user = f"system:serviceaccount:gpu-system:{account}"
            assert condition["expression"] == f"request.userInfo.username == '{user}'"


def test_the_webhook_is_called_for_new_pods_and_debug_containers(rendered: Rendered) -> None:
    """Updates of pods cannot change what it judges; it has no side effects."""
    (hook,) = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
    assert hook["rules"] == [
        {**CORE, "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced"},
        {
            **CORE,
            "resources": ["pods/ephemeralcontainers"],
            "operations": ["UPDATE"],
            "scope": "Namespaced",
        },
    ]
    assert (hook["sideEffects"], hook["admissionReviewVersions"]) == ("None", ["v1"])
    assert "reinvocationPolicy" not in hook


@pytest.mark.slow
def test_the_webhook_follows_its_values() -> None:
    """Time-out, failure policy and annotations are the operator's."""
    values = {"timeoutSeconds": 7, "failurePolicy": "Fail", "annotations": {"a": "b"}}
    (found,) = render(values={"webhook": values}).of("MutatingWebhookConfiguration")
    (hook,) = found["webhooks"]
    assert (hook["timeoutSeconds"], hook["failurePolicy"]) == (7, "Fail")
    assert found["metadata"]["annotations"] == {"a": "b"}
