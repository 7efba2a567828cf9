"""Helm, which renders the chart and keeps releases: the program on PATH, else its library.

The library is the Go code of the same Helm, so what is rendered does not depend on which of the two
is there. It is the package of the extra ``serve``. It lives in a process of its own
(:mod:`gpukube.helmchild`), since a process that has loaded it must not fork. Nothing
here waits for pods.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuinspect.errors import HelmError

CHART: Final = Path(__file__).parent / "chart"
NO_HELM: Final = (
    "serving needs Helm: put helm on PATH, or install its library with pip install helm-python-sdk"
)
SEVERAL_FILES: Final = (
    "KUBECONFIG names several files, and Helm's library reads only one: put helm on PATH, or name "
    "one file with --kubeconfig (kubectl config view --flatten prints all as one)"
)
ACTION_SECONDS: Final = 120
_CHILD: Final = "gpukube.helmchild"
_LIBRARY: Final = "helm_python"
_ABSENT: Final = "release: not found"
_FAILED: Final = "failed"
"""Status of a release of which an object was refused; the objects before it stay."""


class ReleasePlace(msgspec.Struct, frozen=True):
    """Which cluster and namespace.

    Attributes:
        kubeconfig: file; ``None`` as Helm finds it.
        context: of the kubeconfig; empty for its current one.
    """

    namespace: str
    kubeconfig: Path | None = None
    context: str = ""


class Helm(msgspec.Struct, frozen=True):
    """Helm for one place.

    Attributes:
        program: path of helm; empty uses the library.
    """

    place: ReleasePlace
    program: str

    @classmethod
    def at(cls, place: ReleasePlace) -> "Helm":
        """The Helm of this machine.

        Raises:
            HelmError: it has none.
        """
        program = shutil.which("helm") or ""
        if not program and find_spec(_LIBRARY) is None:
            raise HelmError(NO_HELM)
        return cls(place, program)

    def render(self, release: str, values: Mapping[str, Any]) -> str:
        """The manifests of a release, as YAML, without access to a cluster.

        Raises:
            HelmError: the chart refuses the values.
        """
        if not self.program:
            return self._child("render", release, values)
        return self._run("template", release, _chart(), "--values", "-", stdin=values)

    def chart_of(self, release: str) -> str:
        """Name of the chart of a release; empty where there is no release of the name.

        Raises:
            HelmError: the cluster did not answer.
        """
        if not self.program:
            return self._child("chart", release)
        try:
            found = json.loads(self._run("get", "metadata", release, "--output", "json"))
        except HelmError as error:
            if _ABSENT in str(error):
                return ""
            raise
        return str(found["chart"])

    def install(self, release: str, values: Mapping[str, Any]) -> None:
        """Create a release; one whose objects the cluster refuses is removed again.

        Raises:
            HelmError: the chart or the cluster refused.
        """
        try:
            if self.program:
                self._run("install", release, _chart(), "--values", "-", stdin=values)
            else:
                self._child("install", release, values)
        except HelmError:
            with suppress(HelmError):
                if self._status(release) == _FAILED:
                    self.uninstall(release)
            raise

    def _status(self, release: str) -> str:
        if not self.program:
            return self._child("status", release)
        found = json.loads(self._run("status", release, "--output", "json"))
        return str(found["info"]["status"])

    def uninstall(self, release: str) -> None:
        """Remove a release with all its objects.

        Raises:
            HelmError: the cluster refused.
        """
        if not self.program:
            self._child("uninstall", release)
            return
        self._run("uninstall", release)

    def _run(self, *words: str, stdin: Mapping[str, Any] | None = None) -> str:
        place = self.place
        where = ["--namespace", place.namespace]
        where += ["--kubeconfig", str(place.kubeconfig)] if place.kubeconfig else []
        where += ["--kube-context", place.context] if place.context else []
        return _output([self.program, *words, *where], json.dumps(stdin or {}))

    def _child(self, action: str, release: str, values: Mapping[str, Any] | None = None) -> str:
        place = self.place
        kubeconfig = None if action == "render" else _one_file(place.kubeconfig)
        request = {
            "action": action,
            "release": release,
            "values": values or {},
            "chart": _chart(),
            "namespace": place.namespace,
            "kubeconfig": kubeconfig,
            "context": place.context or None,
        }
        return _output([sys.executable, "-m", _CHILD], json.dumps(request))


def _one_file(kubeconfig: Path | None) -> str | None:
    """The kubeconfig for the library, which takes a list of files for the path of one.

    Raises:
        HelmError: there are several files.
    """
    named = str(kubeconfig or os.environ.get("KUBECONFIG", ""))
    files = [path for path in named.split(os.pathsep) if Path(path).is_file()]
    if len(files) > 1:
        raise HelmError(SEVERAL_FILES)
    return files[0] if files else named or None


def _chart() -> str:
    """The folder itself: in a checkout the package holds a link to it, which Helm would warn of."""
    return str(CHART.resolve())


def _output(command: Sequence[str], stdin: str) -> str:
    """What a program printed: Helm writes UTF-8 whatever the locale is."""
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            input=stdin,
            timeout=ACTION_SECONDS,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
    except subprocess.TimeoutExpired as error:
        raise HelmError(f"Helm did not end within {ACTION_SECONDS} s") from error
    if done.returncode:
        words = done.stderr.strip().removeprefix("Error: ")
        raise HelmError(words or f"{command[0]} exited {done.returncode}")
    return done.stdout
