"""Two profiles in one scheduler: one compares all nodes, one few while many pods wait."""

from typing import Any

import pytest
from charting import Rendered, render

pytestmark = pytest.mark.slow

BURST = "gpushare-scheduler-burst"


def profiles(found: Rendered) -> dict[str, Any]:
    """The profiles of the second scheduler by name."""
    return {one["schedulerName"]: one for one in found.scheduler_config()["profiles"]}


def flags(found: Rendered, name: str, container: str) -> dict[str, str]:
    """The flags of a container of a Deployment."""
    pod = found.one("Deployment", name)["spec"]["template"]["spec"]
    (box,) = (each for each in pod["containers"] if each["name"] == container)
    return dict(word.removeprefix("--").split("=", 1) for word in box["args"])


def everywhere(found: Rendered) -> list[dict[str, str]]:
    """The flags of extender and webhook."""
    return [
        flags(found, "gpushare-scheduler", "extender"),
        flags(found, "gpushare-webhook", "webhook"),
    ]


def test_the_scheduler_has_a_profile_for_bursts() -> None:
    """It differs from the other by its name and the percentage of nodes, which goes first."""
    found = profiles(render("1.37.1"))
    exact, burst = found["gpushare-scheduler"], found[BURST]
    assert burst.pop("percentageOfNodesToScore") == 1
    assert burst | {"schedulerName": exact["schedulerName"]} == exact
    assert render("1.37.1").scheduler_config()["percentageOfNodesToScore"] == 100


def test_extender_and_webhook_know_both_names() -> None:
    """The webhook sets them; the extender answers what-if questions by them."""
    for found in everywhere(render("1.37.1")):
        assert found["webhook-scheduler"] == "gpushare-scheduler"
        assert (found["burst-scheduler"], found["burst-pods"]) == (BURST, "32")


def test_both_names_follow_that_of_the_scheduler() -> None:
    """Also in the pods that the API server sends to the webhook."""
    found = render("1.37.1", {"scheduler": {"name": "gpu"}})
    assert list(profiles(found)) == ["gpu", "gpu-burst"]
    assert all(each["burst-scheduler"] == "gpu-burst" for each in everywhere(found))
    hook = found.one("MutatingWebhookConfiguration", "gpushare-webhook")["webhooks"][0]
    condition = hook["matchConditions"][0]["expression"]
    assert '["","default-scheduler","gpu","gpu-burst"]' in condition


@pytest.mark.parametrize("version", ["1.20.2", "1.25.9"])
def test_older_schedulers_have_one_profile(version: str) -> None:
    """Before Kubernetes 1.26 a profile has no percentage of its own."""
    found = render(version)
    assert list(profiles(found)) == ["gpushare-scheduler"]
    assert not any("burst-scheduler" in each for each in everywhere(found))


@pytest.mark.parametrize(
    "values",
    [
        {"scheduler": {"burstPods": 0}},
        {"scheduler": {"percentageOfNodesToScore": 1}},
        {"webhook": {"enabled": False}},
    ],
)
def test_a_profile_that_is_not_set_any_more_stays_for_pods_that_wait(
    values: dict[str, Any],
) -> None:
    """Pods with its name may be pending while the values change."""
    found = render("1.37.1", values)
    assert list(profiles(found)) == ["gpushare-scheduler", BURST]
    assert flags(found, "gpushare-scheduler", "extender")["burst-pods"] == "0"


def test_the_clusters_own_scheduler_has_no_burst_profile() -> None:
    """In mode extender its configuration is the administrator's."""
    found = render("1.37.1", {"scheduler": {"mode": "extender"}})
    webhook = flags(found, "gpushare-webhook", "webhook")
    extender = flags(found, "gpushare-extender", "extender")
    for each in (webhook, extender):
        assert (each["webhook-scheduler"], "burst-scheduler" in each) == ("", False)
