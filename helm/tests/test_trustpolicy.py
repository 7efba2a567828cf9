"""The policy of the certificates' account: of the webhook configuration, the bundles only."""

import copy
from typing import Any

import pytest
from admission import Policy, held_by, labelled, request
from charting import NAMESPACE, Object, Rendered, render
from handshake import issue

pytestmark = pytest.mark.slow

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gpushare-certificates"
RESOURCE = "mutatingwebhookconfigurations"


def rendered(**values: Any) -> Rendered:
    """The chart with both webhooks."""
    both = {"claims": {"enabled": True}, "webhook": {"claims": "namespaces"}}
    return render("1.37.0", {**both, **values}, anew=True)


@pytest.fixture(scope="module")
def policy() -> Policy:
    """As a cluster gets it by default."""
    return Policy(rendered(), "-certificates")


@pytest.fixture
def before() -> Object:
    """The configuration as Helm creates it."""
    return copy.deepcopy(rendered().one("MutatingWebhookConfiguration", "-webhook"))


def asked(policy: Policy, before: Object, after: Object, user: str = ACCOUNT) -> str:
    """Why the API server refuses the update; empty where it does not."""
    return policy.refuses(request(user, resource=RESOURCE), before, after)


def test_what_the_job_writes_passes(policy: Policy, before: Object) -> None:
    """The first bundle, and another one."""
    chart = rendered()
    issue(chart)
    after = chart.one("MutatingWebhookConfiguration", "-webhook")
    assert after != before
    assert asked(policy, before, after) == ""
    renewed = copy.deepcopy(after)
    for each in renewed["webhooks"]:
        each["clientConfig"]["caBundle"] = "YQ=="
    assert asked(policy, after, renewed) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]},
        {"failurePolicy": "Fail"},
        {"name": "other.gpushare.io"},
        {"objectSelector": {"matchLabels": {"a": "b"}}},
        {"namespaceSelector": {}},
        {"clientConfig": {"url": "https://192.0.2.1"}},
        {"clientConfig": {"service": {"name": "evil", "namespace": NAMESPACE}}},
    ],
)
def test_a_stolen_token_chooses_no_objects_and_no_server(
    policy: Policy, before: Object, change: Object
) -> None:
    """With other rules the API server would send every object that is written to another server."""
    after = copy.deepcopy(before)
    after["webhooks"][1] |= change
    assert "nothing but caBundle" in asked(policy, before, after)
    assert asked(policy, before, after, "jane") == ""


def test_a_stolen_token_removes_and_adds_no_field_and_no_webhook(
    policy: Policy, before: Object
) -> None:
    """Without its conditions a webhook would get all pods."""
    after = copy.deepcopy(before)
    del after["webhooks"][0]["matchConditions"]
    assert "nothing but caBundle" in asked(policy, before, after)
    first, second = before["webhooks"]
    for webhooks in ([], [first], [first, second, second | {"name": "third.gpushare.io"}]):
        assert "nothing but caBundle" in asked(policy, before, before | {"webhooks": webhooks})


def test_a_stolen_token_leaves_the_metadata_as_it_is(policy: Policy, before: Object) -> None:
    """An owner reference would have the configuration removed."""
    for after in (
        held_by(before, ownerReferences=[{"kind": "Node", "uid": "0"}]),
        held_by(before, finalizers=["evil/stay"]),
        held_by(before, annotations={"cert-manager.io/inject-ca-from": "evil/evil"}),
        labelled(before, "app.kubernetes.io/name", "evil"),
    ):
        assert "of the metadata" in asked(policy, before, after)


def test_without_a_job_that_issues_there_is_no_policy() -> None:
    """Nor where it issues nothing for a webhook: the account has no right to configurations."""
    cert_manager = {"source": "cert-manager", "issuerRef": {"name": "ca"}}
    for values in ({"certificates": cert_manager}, {"webhook": {"enabled": False}}):
        policies = rendered(**values).of("ValidatingAdmissionPolicy")
        assert not [each for each in policies if each["metadata"]["name"].endswith("certificates")]
