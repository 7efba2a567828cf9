"""Every page of docs/ that is marked to run on kind does what it shows."""

import json
from pathlib import Path

import pytest

from environments.case import Case
from environments.kind import KindEnvironment
from environments.reader import terminal
from environments.waiting import PATIENCE_SECONDS, until
from guides.blocks import Guide, GuideTarget, found
from guides.session import GuideSession

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
IMAGE = "busybox:1.36"
"""What pages call an image with a shell."""
MODEL_SERVER = "tensorflow/serving:latest-gpu"
"""What the guide of serving serves with; a stand-in here, which has the example's model."""
NAMESPACE = "my-team"
"""What pages call the reader's namespace."""
LEFT = "deployments,statefulsets,jobs,pods,services,configmaps"
OURS = "kube-root-ca.crt"
"""A config map that every namespace of newer clusters has."""


@pytest.mark.parametrize(
    "guide", found(ROOT / "docs", GuideTarget.KIND), ids=lambda guide: guide.path.stem
)
def test_a_guide_does_what_it_shows_and_cleans_up(
    environment: KindEnvironment, case: Case, tmp_path: Path, guide: Guide
) -> None:
    """Its commands run in a namespace that is empty again when the reader is done.

    GPUs are as they were, too: one whose label is gone goes back to its mode a moment later.
    """
    plain = {node: ["none"] * len(gpus) for node, gpus in environment.nodes.items()}
    until("GPUs without isolation", lambda: _modes(environment) == plain)
    session = GuideSession(
        tmp_path,
        environment=terminal(environment, case, tmp_path),
        stands_for={
            IMAGE: environment.image,
            MODEL_SERVER: environment.modelserver,
            NAMESPACE: case.name,
        },
        patience_s=PATIENCE_SECONDS,
    )
    session.follow(guide)
    until("what the page made gone", lambda: not _left(case))
    until("GPUs as before", lambda: _modes(environment) == plain)


def _modes(environment: KindEnvironment) -> dict[str, list[str]]:
    """Isolation of the GPUs of each node, as published."""
    return {
        node["metadata"]["name"]: [gpu["mode"] for gpu in json.loads(text)["gpus"]]
        for node in environment.objects.nodes()
        if (text := node["metadata"]["annotations"].get("gpushare/inventory"))
    }


def _left(case: Case) -> list[str]:
    """Objects of the namespace that are not being deleted."""
    found = case.kubectl.items(LEFT, "-n", case.name)
    kept = [item["metadata"] for item in found if "deletionTimestamp" not in item["metadata"]]
    return [meta["name"] for meta in kept if meta["name"] != OURS]
