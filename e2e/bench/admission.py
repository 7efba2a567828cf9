"""The webhook as the chart runs it: processes that only watch, called by the API server."""

import asyncio
import base64
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import inpod
from bench.binds import PATH
from bench.subject import COMMAND
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.processes import ChildProcess, free_port

HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NAME: Final = "gpushare-bench"
UNNAMED: Final = "default-scheduler"
"""Scheduler of pods that name none."""
SECONDS: Final = 60


@asynccontextmanager
async def webhooks(
    plane: ControlPlane, calls: ApiCalls, flags: Sequence[str], *, scheduler: str, count: int = 1
) -> AsyncIterator[Mapping[str, int]]:
    """Webhooks that the API server calls in turns; their process ids.

    Args:
        flags: of each process.
        scheduler: that a pod without a name gets while no other pod waits.
        count: number of processes; each reviews the pods of an equal part of all names.
    """
    folder = await asyncio.to_thread(_certificate, plane)
    async with AsyncExitStack() as ends:
        ports = [free_port() for _ in range(count)]
        starts = (asyncio.to_thread(_start, plane, folder, flags, port) for port in ports)
        processes = await asyncio.gather(*starts)
        for process in processes:
            ends.callback(process.stop)
        authority = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
        await calls.create(HOOKS, [_configuration(ports, authority)])
        ends.push_async_callback(calls.call, "DELETE", f"{HOOKS}/{NAME}")
        await _called(calls, scheduler)
        yield {f"webhook {number}": one.pid for number, one in enumerate(processes)}


def _certificate(plane: ControlPlane) -> Path:
    folder = plane.folder / "webhook"
    folder.mkdir(exist_ok=True)
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    names = ["-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files, *names], check=True, capture_output=True, timeout=SECONDS)
    return folder


def _start(plane: ControlPlane, folder: Path, flags: Sequence[str], port: int) -> ChildProcess:
    command = [str(COMMAND), "--webhook-only=true", "--host=127.0.0.1"]
    command += [f"--webhook-port={port}", f"--webhook-certificates={folder}", *flags]
    argv, environ = inpod.argv(plane, command), inpod.environ(plane)
    return plane.start_program(f"webhook-{port}", argv, LOG_LEVEL="warn", **environ)


def _configuration(ports: Sequence[int], authority: str) -> dict[str, Any]:
    """One webhook for each process; the last digit of a pod's name chooses."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": f"webhook{number}.gpushare.bench",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/admit",
                    "caBundle": authority,
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "matchConditions": [{"name": "turn", "expression": _turn(number, len(ports))}],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 30,
            }
            for number, port in enumerate(ports)
        ],
    }


def _turn(number: int, count: int) -> str:
    digits = [str(digit) for digit in range(10) if digit % count == number]
    return f"object.metadata.name.matches('[{''.join(digits)}]$')"


async def _called(calls: ApiCalls, scheduler: str) -> None:
    """Until every process answers and the API server calls them all."""
    async with asyncio.timeout(SECONDS):
        for digit in range(10):
            probe = fakenodes.pod(f"probe-{digit}", 1, scheduler=UNNAMED)
            while await _given(calls, probe) != scheduler:  # noqa: ASYNC110 - the API server's watch
                await asyncio.sleep(0.1)


async def _given(calls: ApiCalls, pod: dict[str, Any]) -> str:
    made = msgspec.json.decode(await calls.call("POST", f"{PATH}?dryRun=All", pod))
    return str(made["spec"]["schedulerName"])


def unique(prefix: str) -> str:
    """A name that no run had before."""
    return f"{prefix}-{time.monotonic_ns()}"
