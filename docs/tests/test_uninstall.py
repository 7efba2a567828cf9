"""The page about the uninstall names what gpushare leaves in a cluster and on nodes."""

import re
from pathlib import Path

import typer
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from gpucore.node.claims.prepare import CLAIM_KIND
from gpucore.node.isolation.cdi import CDI_KIND
from gpucore.wire.names import API, CLAIM_MANAGER, GPU_ISOLATION, ISOLATION, MANAGED_BY
from gpuinspect.commands.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "uninstall.md").read_text()
VALUES = yaml.safe_load((ROOT / "helm" / "gpushare" / "values.yaml").read_text())


def test_claim_templates_that_remain_are_deleted_by_the_label_that_they_have() -> None:
    """Helm knows none of them: the extender creates them for converted pods."""
    command = f"kubectl delete resourceclaimtemplates -A -l {MANAGED_BY}={CLAIM_MANAGER}"
    assert f"`{command}`" in PAGE


def test_files_that_remain_on_gpu_nodes_are_named() -> None:
    """The histories of usage, the CDI files of running pods, and what MPS daemons had."""
    plugin, mps = VALUES["devicePlugin"], VALUES["mps"]["root"]
    kinds = [kind.replace("/", "-") for kind in (CDI_KIND, CLAIM_KIND)]
    cdi = [f"{plugin['cdi']['directory']}/{kind}_*.json" for kind in kinds]
    for path in (f"{plugin['kubeletRoot']}/plugins/gpushare-usage", *cdi, mps):
        assert f"| `{path}` |" in PAGE


def test_what_an_operator_wrote_on_nodes_is_named() -> None:
    """Nothing removes the labels and the annotation that choose API and isolation mode."""
    for command, key in (("label", API), ("label", ISOLATION), ("annotate", GPU_ISOLATION)):
        assert re.search(rf"`kubectl {command} node NODE [^`]*\b{key}-", PAGE)


def test_leases_of_commands_that_evict_are_named() -> None:
    """The commands create them in kube-system and keep them for their next run."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    leases = []
    for name in ("defrag", "idle"):
        command = group.get_command(typer.Context(group), name)
        (default,) = (each.default for each in command.params if "--lease" in each.opts)
        leases.append(default.removeprefix("kube-system/"))
    assert f"`kubectl -n kube-system delete lease {' '.join(leases)}`" in PAGE
