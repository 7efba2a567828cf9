"""CPU and wall time of filter, prioritize and bind, beside other checkouts of this repository.

make bench-calls                                            this checkout
make bench-calls ARGS='--beside ../older --rounds 5'        and another one, in turns

Each checkout runs as a process of its own against one fake API server, which all of them watch.
Pods of a few shapes are filtered, prioritized and bound one after the other, so that nodes change
between the calls. CPU time is that of the event loop's thread from one call to the next, so it
includes what a call leaves to be done; it depends less on other load of the machine than time does.
The exit status is 1 where this checkout exceeds a budget in CPU time.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from fleet import NODES, node_object, pod_object

from gpukube.testing.apiserver import FakeApiServer

PREFIX = "/gpushare-scheduler"
AMOUNTS = (1, 2, 4, 8, 12, 20)
BUDGET_MS = {500: 1.5, 5000: 5.0}
START_SECONDS = 120
WARM_UP = 10


def main() -> int:
    """Start everything, measure, print the table."""
    options = _parser().parse_args()
    checkouts = [Path(__file__).parents[3], *options.beside]
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        cluster = Cluster(options.pods)
        (folder / "kubeconfig").write_text(cluster.kubeconfig)
        extenders = [ends.enter_context(started(one, folder)) for one in checkouts]
        numbers = iter(range(10**9))
        for names in options.names or BUDGET_MS:
            for _ in range(options.rounds):
                for extender in extenders:
                    measure(extender, cluster, names, options.pairs, numbers)
    for extender in extenders:
        _print(extender)
    return _within_budget(extenders[0])


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--beside", type=Path, action="append", default=[], help="other checkout")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each checkout")
    parser.add_argument("--pairs", type=int, default=200, help="pods of one turn")
    parser.add_argument("--names", type=int, action="append", choices=BUDGET_MS, help="node names")
    parser.add_argument("--pods", type=int, default=50_000, help="running pods of the cluster")
    return parser


class Cluster:
    """A fake API server in a thread of its own, with 5,000 nodes of 8 GPUs and running pods."""

    def __init__(self, pods: int) -> None:
        self._server = FakeApiServer()
        chance = random.Random(7)
        for number in range(NODES):
            self._server.nodes.put(node_object(number))
        for number in range(pods):
            self._server.pods.put(pod_object(number, chance))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._server.__aenter__(), self._loop).result()
        self.kubeconfig = self._server.kubeconfig()

    def create(self, pods: Sequence[dict[str, Any]]) -> None:
        """Add pods, which watches deliver."""
        for pod in pods:
            asyncio.run_coroutine_threadsafe(self._server.put("pods", pod), self._loop).result()


class Extender:
    """The extender of one checkout and what its calls took, in milliseconds.

    Attributes:
        cpu, wall: by number of names and call.
    """

    def __init__(self, name: str, pid: int, port: int) -> None:
        self.name = name
        self._pid = pid
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.cpu: dict[tuple[int, str], list[float]] = defaultdict(list)
        self.wall: dict[tuple[int, str], list[float]] = defaultdict(list)

    def call(self, verb: str, body: object, names: int) -> Any:
        """Send one call; it is measured where ``names`` is not 0."""
        data = json.dumps(body, separators=(",", ":")).encode()
        before, begin = self._cpu(), time.perf_counter()
        self._http.request("POST", f"{PREFIX}/{verb}", data, {"Content-Type": "application/json"})
        content = self._http.getresponse().read()
        wall, cpu = time.perf_counter() - begin, self._cpu() - before
        if names:
            self.wall[names, verb].append(1e3 * wall)
            self.cpu[names, verb].append(1e3 * cpu)
        return json.loads(content)

    def ready(self) -> bool:
        """Whether it takes decisions."""
        try:
            self._http.request("GET", "/readyz")
            answer = self._http.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            return False
        return answer.status == http.client.OK

    def _cpu(self) -> float:
        """CPU seconds of its main thread, in which the event loop runs, once it waits again."""
        return _settled(Path(f"/proc/{self._pid}/schedstat"))


def _settled(schedstat: Path) -> float:
    """The value when the thread has used no CPU for half a millisecond, or after a second."""
    used, deadline = -1, time.monotonic() + 1
    while time.monotonic() < deadline:
        now = int(schedstat.read_text().split()[0])
        if now == used:
            break
        used = now
        time.sleep(0.0005)
    return used / 1e9


@contextmanager
def started(checkout: Path, folder: Path) -> Iterator[Extender]:
    """The extender of a checkout, ready; it runs with the packages of this environment."""
    sources = [*checkout.glob("libs/*/src"), checkout / "services/extender/src"]
    path = os.pathsep.join(map(str, (one.resolve() for one in sources)))
    port = _free_port()
    command = (sys.executable, "-m", "gpuextender", "--kubeconfig", str(folder / "kubeconfig"))
    where = ("--host", "127.0.0.1", "--port", str(port))
    process = subprocess.Popen([*command, *where], env={**os.environ, "PYTHONPATH": path})
    try:
        extender = Extender(_commit(checkout), process.pid, port)
        deadline = time.monotonic() + START_SECONDS
        while not extender.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the extender of {checkout} is not ready")
            time.sleep(0.2)
        yield extender
    finally:
        process.terminate()
        process.wait()


def measure(
    extender: Extender, cluster: Cluster, names: int, pairs: int, numbers: Iterator[int]
) -> None:
    """Filter, prioritize and bind pods one after the other, each with other names."""
    pods = [_pod(number) for number in islice(numbers, WARM_UP + pairs)]
    cluster.create(pods)
    for turn, pod in enumerate(pods):
        counted = names if turn >= WARM_UP else 0
        first = turn * 137 % NODES
        node_names = [f"node-{(first + i) % NODES:05}" for i in range(names)]
        args = {"Pod": pod, "Nodes": None, "NodeNames": node_names}
        fits = extender.call("filter", args, counted)["NodeNames"]
        scores = extender.call("prioritize", args, counted)
        assert len(scores) == names
        error = extender.call("bind", _binding(pod, fits[0]), counted)["Error"]
        assert not error, error


def _pod(number: int) -> dict[str, Any]:
    """A pod that waits, of one of a few shapes; every seventh has two containers."""
    amount = AMOUNTS[number % len(AMOUNTS)]
    limits = {"aliyun.com/gpu-mem": str(amount), "cpu": "10m"}
    containers = [
        {"name": f"c{i}", "image": "none", "resources": {"limits": limits, "requests": limits}}
        for i in range(2 if number % 7 == 0 else 1)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"new-{number}",
            "namespace": "models",
            "uid": f"{number:08x}-0000-4000-9000-000000000000",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "none", "containers": containers},
        "status": {"phase": "Pending"},
    }


def _binding(pod: dict[str, Any], node: str) -> dict[str, str]:
    metadata = pod["metadata"]
    found = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"]}
    return {**found, "PodUID": metadata["uid"], "Node": node}


def _commit(checkout: Path) -> str:
    command = ("git", "-C", str(checkout), "log", "-1", "--format=%h")
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    changes = ("git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no")
    changed = subprocess.run(changes, check=True, capture_output=True, text=True).stdout.strip()
    return f"{commit}, with changes" if changed else commit


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def _print(extender: Extender) -> None:
    print(f"\n{extender.name}, load average {os.getloadavg()[0]:.1f}\n")
    print("| call | names | calls | CPU p50 ms | CPU p99 ms | wall p50 ms | wall p99 ms |")
    print("|---|---|---|---|---|---|---|")
    for (names, verb), cpu in extender.cpu.items():
        figures = (*_quantiles(cpu), *_quantiles(extender.wall[names, verb]))
        cells = " | ".join(f"{one:.2f}" for one in figures)
        print(f"| {verb} | {names} | {len(cpu)} | {cells} |")


def _within_budget(extender: Extender) -> int:
    late = [
        f"{verb} with {names} names"
        for (names, verb), cpu in extender.cpu.items()
        if verb != "bind" and _quantiles(cpu)[1] > BUDGET_MS[names]
    ]
    print("\n" + (f"over budget: {', '.join(late)}" if late else "within budget in CPU time"))
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
