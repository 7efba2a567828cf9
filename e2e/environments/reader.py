"""A terminal as the reader of a guide has it: commands, a namespace of theirs, a checkout.

`helm` is the one of this machine, or where there is none the few words of it that pages use, over
Helm's library (:mod:`environments.helmcommand`).
"""

import json
import os
import shutil
import sys
from pathlib import Path

from environments.case import Case
from environments.kind import CHART, KindEnvironment
from environments.kubectl import Kubectl

VALUES = "images.yaml"
"""What pages call the reader's own values of the chart; those of this cluster here."""
_HELM = """\
#!/bin/sh
PYTHONPATH='{e2e}' exec '{python}' -m environments.helmcommand "$@"
"""


def terminal(environment: KindEnvironment, case: Case, folder: Path) -> dict[str, str]:
    """Variables: commands on PATH, kubectl's context at the cluster, in the case's namespace."""
    config = folder / "kubeconfig"
    shutil.copy(environment.kubectl.kubeconfig, config)
    where = ("config", "set-context", "--current", f"--namespace={case.name}")
    environment.kubectl("--kubeconfig", str(config), *where)
    return {**environment.kubectl.environment, "KUBECONFIG": str(config), "NO_COLOR": "1"}


def plain_terminal(kubectl: Kubectl, folder: Path, namespace: str = "my-team") -> dict[str, str]:
    """Variables: kubectl on PATH, its context in a new namespace; no command of ours."""
    config = folder / "kubeconfig"
    shutil.copy(kubectl.kubeconfig, config)
    kubectl("create", "namespace", namespace)
    where = ("config", "set-context", "--current", f"--namespace={namespace}")
    kubectl("--kubeconfig", str(config), *where)
    path = os.pathsep.join([str(kubectl.binary.parent), kubectl.environment["PATH"]])
    return {**kubectl.environment, "KUBECONFIG": str(config), "PATH": path}


def checkout(environment: KindEnvironment, case: Case, folder: Path) -> dict[str, str]:
    """A terminal in a checkout: the chart and ``images.yaml`` lie beside it, and helm is there."""
    (folder / "helm").mkdir()
    (folder / "helm" / "gpushare").symlink_to(CHART)
    (folder / VALUES).write_text(json.dumps(environment.values))
    variables = terminal(environment, case, folder)
    if shutil.which("helm"):
        return variables
    commands = folder / "bin"
    commands.mkdir()
    program = commands / "helm"
    program.write_text(_HELM.format(e2e=Path(__file__).parents[1], python=sys.executable))
    program.chmod(0o755)
    return {**variables, "PATH": os.pathsep.join([str(commands), variables["PATH"]])}
