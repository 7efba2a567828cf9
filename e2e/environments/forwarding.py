"""A Service of the cluster on a port of this machine, as ``kubectl port-forward`` gives it."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from environments.kubectl import Kubectl

START_SECONDS = 300
_SAID = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@contextmanager
def forwarded(kubectl: Kubectl, namespace: str, service: str, port: int) -> Iterator[str]:
    """Host and port that lead to a Service while the block runs.

    Raises:
        RuntimeError: kubectl ended, or reported no port in time.
    """
    line = [str(kubectl.binary), "port-forward", "-n", namespace, f"service/{service}", f":{port}"]
    with subprocess.Popen(
        line, env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            yield f"127.0.0.1:{_port(running)}"
        finally:
            running.terminate()


def _port(running: subprocess.Popen[str]) -> int:
    late = Timer(START_SECONDS, running.kill)
    late.start()
    try:
        lines: list[str] = []
        for text in running.stdout or ():
            lines.append(text)
            if found := _SAID.search(text):
                return int(found[1])
    finally:
        late.cancel()
    raise RuntimeError(f"kubectl port-forward: {''.join(lines).strip() or 'no word in time'}")
