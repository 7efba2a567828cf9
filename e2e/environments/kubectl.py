"""A cluster as a person at a terminal has it: kubectl and a kubeconfig, nothing else."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from host.waiting import DeadlineError, until

Object = dict[str, Any]

COMMAND_SECONDS = 420
"""Longer than any `--timeout` that is given to kubectl here."""
TIMED_OUT = 124
"""Exit status of a command that was ended, as that of ``timeout``."""
TRANSPORT_SECONDS = 60
"""How long a server may be away: kubelet after a restart, the API server on a stalled machine."""
_UNSENT = re.compile(
    r"dial tcp \S+ (connect: connection refused|i/o timeout)"
    r"|The connection to the server \S+ was refused"
    r"|error dialing backend|TLS handshake timeout"
    r'|Get \\?"https://[^/]+/(api|apis|openapi/v[23])\?timeout=\w+\\?": EOF'
    r"|unable to upgrade connection: (pod does not exist|rpc error: code = Unavailable)"
)
"""The server did not get the request, or kubelet does not yet know the pod after a restart.

Or the container runtime, which is restarted, did not get it. Or discovery, which precedes every
request, got no reply: kubectl 1.37 quotes that error in a line of its log.
"""
_LOST = re.compile(
    r"etcdserver: (request timed out|leader changed)|http2: client connection lost"
    r"|connection reset by peer|unexpected EOF"
)
"""The server may have got the request: only what is the same twice is sent again."""
_ABSENT = re.compile(r"Error from server \(NotFound\): \S+ \S+ not found")
_EXPECTING = frozenset({"label", "annotate", "exec", "taint", "cordon", "drain", "scale", "patch"})
"""Verbs that act on an object which the caller expects: it is waited for by name."""
_REPEATABLE = frozenset(
    {"get", "apply", "label", "annotate", "logs", "describe", "rollout", "wait"}
)


class KubectlError(RuntimeError):
    """A command failed; carries the command line and its output."""


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

        A command that did not reach its server is given again for up to a minute, and so is one
        that acts on an object which is not there yet.

        Raises:
            KubectlError: the command failed or took longer than :data:`COMMAND_SECONDS`.
        """
        last: list[subprocess.CompletedProcess[str]] = []

        def arrived() -> bool:
            last[:] = [self.attempt(*args, stdin=stdin)]
            return not _cut_off(args, last[0])

        with suppress(DeadlineError):
            until(f"kubectl {args[0]} reaches its server", arrived, seconds=TRANSPORT_SECONDS)
        (done,) = last
        if done.returncode:
            line = " ".join(["kubectl", *args])
            waited = f" (waited {TRANSPORT_SECONDS} s for it)" if _absent(args, done) else ""
            raise KubectlError(
                f"{line}\nexit {done.returncode}: {done.stderr or done.stdout}{waited}"
            )
        return done.stdout

    def attempt(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run it once; the failure is a value, and so is a command that does not end."""
        command = [str(self.binary), *args]
        try:
            return subprocess.run(
                command,
                env=self.environment,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"did not end within {COMMAND_SECONDS} s"
            return subprocess.CompletedProcess(command, TIMED_OUT, stdout="", stderr=reason)

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


def _cut_off(args: Sequence[str], done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the command may be given again: it was lost on its way, or came too early."""
    if not done.returncode:
        return False
    lost = args[0] in _REPEATABLE and _LOST.search(done.stderr)
    return bool(_UNSENT.search(done.stderr) or lost) or _absent(args, done)


def _absent(args: Sequence[str], done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the object that the command acts on is not there, or not yet."""
    return args[0] in _EXPECTING and bool(_ABSENT.search(done.stderr))
