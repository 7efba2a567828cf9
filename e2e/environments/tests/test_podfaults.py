"""A pod whose image is not on its node ends the wait for it, with the image's name."""

from typing import Any

import pytest

from environments import podfaults
from environments.podfaults import PodFaultError


def pod(reason: str, *, kind: str = "containerStatuses") -> dict[str, Any]:
    waiting = {"reason": reason, "message": "no such image"}
    status = {"name": "c0", "image": "gpushare/sample:1", "state": {"waiting": waiting}}
    return {
        "metadata": {"namespace": "demo", "name": "binpack"},
        "spec": {"nodeName": "worker"},
        "status": {kind: [status]},
    }


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"])
@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_the_image_its_pod_and_its_node_are_named(reason: str, kind: str) -> None:
    with pytest.raises(PodFaultError) as caught:
        podfaults.demand_images([pod("ContainerCreating"), pod(reason, kind=kind)])
    assert str(caught.value) == (
        "pod demo/binpack, container c0: image gpushare/sample:1 was not loaded into node worker "
        f"and cannot be pulled ({reason}: no such image)"
    )


def test_other_pods_are_waited_for() -> None:
    """A container that is created, runs or has no status yet may still come."""
    running = {"containerStatuses": [{"name": "c0", "state": {"running": {}}}]}
    pods = [pod("ContainerCreating"), {"status": running}, {"status": {}}]
    podfaults.demand_images(pods)
    assert podfaults.demand_images([]) is None  # type: ignore[func-returns-value]
