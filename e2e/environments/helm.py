"""Installs, upgrades and removes releases: through `helm` where it is on PATH, else Helm's library.

The library brings a Go runtime into the process that loads it, and such a process must not fork;
so it lives in a child process for each action (:mod:`gpukube.helmchild`). Nothing here waits
for pods: that is the environment's job, which defines what ready means.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ACTION_SECONDS = 600
CHILD = "gpukube.helmchild"
_PENDING = "pending-"
"""How Helm's status of an action that was cut off begins."""
_ABSENT = "release: not found"


class HelmActionError(RuntimeError):
    """An action failed; carries what Helm reported."""


class HelmClient:
    """Helm against one cluster and namespace.

    Args:
        kubeconfig: of the cluster.
        namespace: of the releases; created by the first install.
        binary: the helm to use; None uses the library.
    """

    def __init__(self, kubeconfig: Path, namespace: str, *, binary: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._binary = binary

    def status(self, release: str) -> str:
        """Helm's word for the last revision, such as `deployed`; empty where there is none.

        Raises:
            HelmActionError: the cluster did not answer.
        """
        if self._binary is None:
            return self._child("status", release)
        try:
            found = json.loads(self._run("status", release, "--output", "json"))
        except HelmActionError as error:
            if _ABSENT in str(error):
                return ""
            raise
        return str(found["info"]["status"])

    def install(self, release: str, chart: Path, values: Mapping[str, Any]) -> None:
        """Install or upgrade to these values; an action that was cut off is made undone first.

        Raises:
            HelmActionError: the values, the chart or the cluster refused.
        """
        status = self.status(release)
        if status.startswith(_PENDING):
            self.uninstall(release)
        if self._binary is None:
            verb = "upgrade" if status and not status.startswith(_PENDING) else "install"
            options = {"create_namespace": True} if verb == "install" else {}
            self._child(verb, release, chart=str(chart), values=dict(values), options=options)
            return
        command = ["upgrade", "--install", "--create-namespace", "--values", "-", release]
        self._run(*command, str(chart), stdin=json.dumps(values))

    def rollback(self, release: str) -> None:
        """Go back to the revision before the present one.

        Raises:
            HelmActionError: there is none, or the cluster refused.
        """
        if self._binary is None:
            self._child("rollback", release)
        else:
            self._run("rollback", release)

    def uninstall(self, release: str) -> None:
        """Remove a release; one that is not there is fine.

        Raises:
            HelmActionError: the cluster refused.
        """
        if self._binary is None:
            options = {"ignore_not_found": True, "wait": "watcher"}
            self._child("uninstall", release, options=options)
        elif self.status(release):
            self._run("uninstall", release)

    def test(self, release: str) -> str:
        """Run the release's tests; what their pods wrote.

        Raises:
            HelmActionError: a test failed.
        """
        if self._binary is None:
            return self._child("test", release)
        return self._run("test", release, "--logs")

    def _run(self, *words: str, stdin: str = "") -> str:
        """Output of the helm binary."""
        where = ["--kubeconfig", str(self._kubeconfig), "--namespace", self._namespace]
        return _output([str(self._binary), *words, *where], stdin=stdin)

    def _child(self, action: str, release: str, **more: Any) -> str:
        """Answer of the library, from a process of its own."""
        request = {
            "action": action,
            "release": release,
            "namespace": self._namespace,
            "kubeconfig": str(self._kubeconfig),
            **more,
        }
        return _output([sys.executable, "-m", CHILD], stdin=json.dumps(request))


def install(
    release: str, chart: Path, namespace: str, values: Mapping[str, Any], kubeconfig: Path
) -> None:
    """Install or upgrade a release with the Helm of this machine.

    Raises:
        HelmActionError: Helm refused; the message states why.
    """
    HelmClient(kubeconfig, namespace, binary=shutil.which("helm")).install(release, chart, values)


def rollback(release: str, namespace: str, kubeconfig: Path) -> None:
    """Go back to the revision before the present one, with the Helm of this machine.

    Raises:
        HelmActionError: Helm refused; the message states why.
    """
    HelmClient(kubeconfig, namespace, binary=shutil.which("helm")).rollback(release)


def uninstall(release: str, namespace: str, kubeconfig: Path) -> None:
    """Remove a release with the Helm of this machine.

    Raises:
        HelmActionError: Helm refused; the message states why.
    """
    HelmClient(kubeconfig, namespace, binary=shutil.which("helm")).uninstall(release)


def _output(command: Sequence[str], *, stdin: str) -> str:
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=ACTION_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise HelmActionError(f"{command[0]} did not end within {ACTION_SECONDS} s") from error
    if done.returncode:
        raise HelmActionError(done.stderr.strip() or f"{command[0]} exited {done.returncode}")
    return done.stdout
