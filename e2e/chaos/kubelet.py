"""The kubelet of one node without containers, as a program that may be killed at any moment.

python -m chaos.kubelet NODE FOLDER URL TOKEN-FILE

It lists and watches the pods of its node, admits them one at a time through the real plugin's
sockets, writes their phase, removes those that are deleted, and publishes what the plugin offers.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import grpc.aio
import msgspec
from yarl import URL

from chaos.devicemanager import AdmissionRefusedError, NodeDeviceManager
from environments.apicall import MERGE_PATCH, ApiCalls
from hardware import protocol

RUN_SECONDS: Final = "chaos/run-seconds"
"""Pod annotation: the pod succeeds this many seconds after its start."""
RETRY_SECONDS: Final = 0.3
WATCH_SECONDS: Final = 300
ENDED: Final = frozenset({"Succeeded", "Failed"})
GONE: Final = (200, 404, 409)
FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError, AssertionError)
"""Of a call while the API server is away or starts."""

Object = dict[str, Any]


class ApiAddress(NamedTuple):
    """Where the API server is, and the token for it."""

    url: str
    token: str


class NodeKubelet:
    """See the module; :meth:`run` never returns.

    Args:
        calls: to the API server.
        node: its name.
        root: directory of its sockets and its file of grants.
    """

    def __init__(self, calls: ApiCalls, node: str, root: Path) -> None:
        self._calls, self._node = calls, node
        self._offered = asyncio.Event()
        self._devices = NodeDeviceManager(root, self._offered.set)
        self._pod_resources = root / "pod-resources.sock"
        self._jobs: set[asyncio.Task[None]] = set()
        self._phases: dict[str, str] = {}

    async def run(self) -> None:
        """Serve the two sockets and follow the pods, until the process is killed."""
        self._devices.directory.mkdir(exist_ok=True)
        for socket in [*self._devices.directory.glob("*.sock"), self._pod_resources]:
            socket.unlink(missing_ok=True)  # as kubelet does at its start
        listing = grpc.unary_unary_rpc_method_handler(
            self._devices.pod_resources,
            request_deserializer=protocol.message(
                "ListPodResourcesRequest", protocol.POD_RESOURCES
            ).FromString,
            response_serializer=protocol.message(
                "ListPodResourcesResponse", protocol.POD_RESOURCES
            ).SerializeToString,
        )
        register = grpc.unary_unary_rpc_method_handler(
            self._devices.register,
            request_deserializer=protocol.message("RegisterRequest").FromString,
            response_serializer=protocol.message("Empty").SerializeToString,
        )
        servers = [
            await _serve(self._pod_resources, "v1.PodResourcesLister", {"List": listing}),
            await _serve(
                self._devices.directory / "kubelet.sock",
                "v1beta1.Registration",
                {"Register": register},
            ),
        ]
        await asyncio.gather(self._publish(), self._end_by_themselves(), self._follow())
        del servers

    async def _publish(self) -> None:
        """The node's capacity and allocatable, whenever a plugin offers something else."""
        while True:
            self._offered.clear()
            known, healthy = self._devices.known, self._devices.healthy
            ready = {"type": "Ready", "status": "True", "reason": "ChaosNode"}
            words = f"kubelet {os.getpid()}, {self._devices.registrations} registrations"
            status = {
                "conditions": [ready | {"message": words}],
                "capacity": {name: str(count) for name, count in known.items()},
                "allocatable": {name: str(len(ids)) for name, ids in healthy.items()},
            }
            path = f"/api/v1/nodes/{self._node}/status"
            await self._patiently(
                partial(self._calls.call, "PATCH", path, {"status": status}, kind=MERGE_PATCH)
            )
            await self._offered.wait()

    async def _follow(self) -> None:
        while True:
            try:
                await self._list_and_watch()
            except FAILURES as error:
                print(f"list and watch: {type(error).__name__} {error}", file=sys.stderr)
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_and_watch(self) -> None:
        mine = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self._node}"
        page: Object = msgspec.json.decode(await self._calls.call("GET", mine))
        there = {item["metadata"]["uid"] for item in page["items"]}
        for uid in self._devices.grants.pods.keys() - there:
            self._devices.release(uid)
        for item in sorted(page["items"], key=lambda one: one["metadata"]["creationTimestamp"]):
            await self._handle(item)
        version = page["metadata"]["resourceVersion"]
        path = f"{mine}&watch=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
        limit = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._calls.session.get(URL(path, encoded=True), timeout=limit) as stream:
            async for line in stream.content:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    self._devices.release(event["object"]["metadata"]["uid"])
                else:
                    await self._handle(event["object"])

    async def _handle(self, pod: Object) -> None:
        """One pod as it is now, at the start of this kubelet or later."""
        meta, phase = pod["metadata"], pod["status"].get("phase", "Pending")
        uid = meta["uid"]
        if "deletionTimestamp" in meta:
            self._devices.release(uid)
            self._later(self._remove(pod))
        elif phase in ENDED or self._phases.get(uid) in ENDED:
            self._devices.release(uid)
        elif phase == "Pending" and not self._started(uid):
            await self._admit(uid, pod)
        elif phase == "Pending":
            self._later(self._set_phase(pod, "Running"))

    def _started(self, uid: str) -> bool:
        pod = self._devices.grants.pods.get(uid)
        return pod is not None and pod.started > 0

    async def _admit(self, uid: str, pod: Object) -> None:
        try:
            granted = await self._devices.admit(uid, pod)
        except AdmissionRefusedError as why:
            self._devices.release(uid)
            self._later(self._set_phase(pod, "Failed", "UnexpectedAdmissionError", str(why)))
            return
        granted.started = time.time()
        granted.run_seconds = float(pod["metadata"].get("annotations", {}).get(RUN_SECONDS, 0))
        self._devices.grants.write(self._devices.file)
        self._later(self._set_phase(pod, "Running"))

    async def _end_by_themselves(self) -> None:
        """Pods whose containers exit."""
        while True:
            now = time.time()
            for uid, pod in list(self._devices.grants.pods.items()):
                if pod.started and pod.run_seconds and now > pod.started + pod.run_seconds:
                    self._devices.release(uid)
                    meta = {"namespace": pod.namespace, "name": pod.name, "uid": uid}
                    self._later(self._set_phase({"metadata": meta}, "Succeeded"))
            await asyncio.sleep(RETRY_SECONDS)

    async def _set_phase(
        self, pod: Object, phase: str, reason: str = "", message: str = ""
    ) -> None:
        """Write a phase, unless a later one is to be written meanwhile."""
        uid = pod["metadata"]["uid"]
        self._phases[uid] = phase
        status = {"phase": phase, "reason": reason or None, "message": message or None}
        body = {"metadata": {"uid": uid}, "status": status}

        async def write() -> None:
            if self._phases[uid] == phase:
                path = f"{_path(pod)}/status"
                await self._calls.call("PATCH", path, body, kind=MERGE_PATCH, fine=GONE)

        await self._patiently(write)

    async def _remove(self, pod: Object) -> None:
        condition = {"uid": pod["metadata"]["uid"]}
        body = {"gracePeriodSeconds": 0, "preconditions": condition}
        await self._patiently(lambda: self._calls.call("DELETE", _path(pod), body, fine=GONE))

    async def _patiently(self, call: Callable[[], Awaitable[object]]) -> None:
        """Until the API server answers."""
        while True:
            try:
                await call()
            except FAILURES as error:
                print(f"{type(error).__name__} {error}", file=sys.stderr)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _later(self, job: Any) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def _path(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


async def _serve(socket: Path, service: str, methods: dict[str, Any]) -> grpc.aio.Server:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    return server


async def main(node: str, root: str, url: str, token_file: str) -> None:
    """Run until killed."""
    address = ApiAddress(url, Path(token_file).read_text().strip())  # noqa: ASYNC240
    async with ApiCalls.to(address) as calls:
        await NodeKubelet(calls, node, Path(root)).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
