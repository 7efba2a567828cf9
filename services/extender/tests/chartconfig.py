"""The scheduler configuration that the chart makes for a control plane."""

import asyncio
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from environments import helm
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane

CHART: Final = Path(__file__).parents[3] / "helm" / "gpushare"
SPACE: Final = "profile"
_PATH: Final = f"/api/v1/namespaces/{SPACE}/configmaps/{SPACE}-gpushare-scheduler"


async def chart_config(
    plane: ControlPlane, calls: ApiCalls, **values: dict[str, Any]
) -> dict[str, Any]:
    """The configuration of mode ``second`` for the version of the control plane."""
    off = {"enabled": False}
    given = {"image": {"registry": "local"}, "webhook": off, "admissionPolicy": off, **values}
    await asyncio.to_thread(helm.install, SPACE, CHART, SPACE, given, plane.kubeconfig)
    found = msgspec.json.decode(await calls.call("GET", _PATH))
    return dict(yaml.safe_load(found["data"]["config.yaml"]))
