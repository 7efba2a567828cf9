"""A cluster as a person at a terminal has it: kubectl and a kubeconfig, nothing else."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Object = dict[str, Any]

COMMAND_SECONDS = 120


class KubectlError(RuntimeError):
    """A command failed; carries the line to paste and what it said."""


class Kubectl:
    """Runs kubectl against one cluster.

    Args:
        binary: the kubectl to use.
        kubeconfig: of the cluster.
        path: folders put before PATH, for kubectl's own plugins.

    Attributes:
        environment: variables that a terminal at this cluster has.
    """

    def __init__(self, binary: Path, kubeconfig: Path, *, path: Sequence[Path] = ()) -> None:
        self.binary = binary
        self.kubeconfig = kubeconfig
        folders = [*map(str, path), os.environ.get("PATH", "")]
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PATH": os.pathsep.join(folders),
        }

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        """Standard output of ``kubectl args``.

        Raises:
            KubectlError: the command failed or took longer than two minutes.
        """
        done = self.attempt(*args, stdin=stdin)
        if done.returncode:
            line = " ".join(["kubectl", *args])
            raise KubectlError(f"{line}\nexit {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def attempt(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """The same, with the failure as a value."""
        return subprocess.run(
            [str(self.binary), *args],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def json(self, *args: str) -> Object:
        """``kubectl args -o json``, decoded."""
        answer: Object = json.loads(self(*args, "-o", "json"))
        return answer

    def items(self, *args: str) -> list[Object]:
        """The objects of a list."""
        items: list[Object] = self.json("get", *args)["items"]
        return items

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or update objects, all in one call."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("apply", "-f", "-", stdin=json.dumps(document))
