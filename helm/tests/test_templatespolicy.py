"""The policy of the webhook's account for ResourceClaimTemplates: only those that it creates."""

import pytest
from admission import TENANT, Policy, labelled, request
from charting import NAMESPACE, Object, Rendered, render

from gpucore.claims.share_template import ShareRequest, ShareTemplate, template_object

pytestmark = pytest.mark.slow

WEBHOOK = f"system:serviceaccount:{NAMESPACE}:gpushare-webhook"
OWN = template_object(ShareTemplate((ShareRequest(1024, 0),), 1), "team", "gpushare")
FOREIGN: Object = {"metadata": {"name": "gpushare-0123456789abcdef", "namespace": "team"}}


def rendered(**values: object) -> Rendered:
    """The chart with a webhook that converts shares to claims."""
    chosen = {"claims": {"enabled": True}, "webhook": {"claims": "namespaces"}}
    return render("1.37.1", {**chosen, **values})


@pytest.fixture(scope="module")
def policy() -> Policy:
    """As a cluster with converted pods gets it."""
    return Policy(rendered(), "-claim-templates")


def asked(policy: Policy, verb: str, item: Object, *, user: str = WEBHOOK) -> str:
    """Why the API server refuses to create or delete the template; empty where it does not."""
    before, after = (item, {}) if verb == "DELETE" else (None, item)
    made = request(user, resource="resourceclaimtemplates", verb=verb)
    return policy.refuses(made, before, after)


@pytest.mark.parametrize("verb", ["CREATE", "DELETE"])
def test_the_webhook_creates_and_deletes_its_own_templates(policy: Policy, verb: str) -> None:
    """The label is that of the objects that its code makes."""
    assert asked(policy, verb, OWN) == ""


@pytest.mark.parametrize("verb", ["CREATE", "DELETE"])
@pytest.mark.parametrize(
    "item", [FOREIGN, labelled(FOREIGN, "app.kubernetes.io/managed-by", "Helm")]
)
def test_its_token_reaches_no_template_of_others(policy: Policy, verb: str, item: Object) -> None:
    """A stolen token cannot keep the pods of tenants from their claims."""
    assert "only ResourceClaimTemplates with the label" in asked(policy, verb, item)


def test_tenants_write_their_templates_as_before(policy: Policy) -> None:
    """The policy is about one account."""
    for verb in ("CREATE", "DELETE"):
        assert asked(policy, verb, FOREIGN, user=TENANT) == ""


def test_nothing_is_installed_where_nothing_is_converted() -> None:
    """The account has no right to templates there, so nothing is to be limited."""
    kinds = rendered(webhook={"claims": "off"}).of("ValidatingAdmissionPolicy")
    assert not [each for each in kinds if each["metadata"]["name"].endswith("-claim-templates")]
