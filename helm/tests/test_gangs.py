"""What the extender may read of the gangs of Kubernetes."""

import pytest
from charting import render


@pytest.mark.parametrize("version", ["1.20.2", "1.37.1"])
def test_the_extender_may_list_and_watch_pod_groups(version: str) -> None:
    """In every cluster: the rule has no effect where the API is not served."""
    rules = render(version).one("ClusterRole", "-extender")["rules"]
    (found,) = [rule for rule in rules if rule["apiGroups"] == ["scheduling.k8s.io"]]
    assert found["resources"] == ["podgroups"]
    assert found["verbs"] == ["list", "watch"]


def test_the_webhook_has_no_part_that_plans_gangs() -> None:
    """It has no right to read PodGroups."""
    (container,) = render().one("Deployment", "-webhook")["spec"]["template"]["spec"]["containers"]
    assert "--webhook-only=true" in container["args"]
