"""Bring the demo up, show it, or take it away.

    python -m demo up      create or update the cluster, the stack and the sample pods
    python -m demo down    remove all of it

A second ``up`` reuses what is there. Progress goes to standard error, the table to standard output.
"""

import argparse
import sys

from cluster.errors import ClusterError
from cluster.progress import step
from environments import table, workloads
from environments.environment import UnavailableError
from environments.kind import KindEnvironment
from environments.kubectl import KubectlError

NAME = "gpushare-demo"
MACHINES = ("t4-2x16", "a100-pcie-4x40")
SPACE = "demo"
SAMPLES = {"binpack": (2, 3), "training": (24, 2), "notebook": (5, 1)}
"""Deployment -> (units of each pod, replicas)."""

NEXT = """
Try next, in this shell:

  export KUBECONFIG={kubeconfig} PATH={path}:$PATH

  kubectl inspect gpushare -d                                   who sits on which card
  kubectl get pods -n demo -o wide                              the sample pods
  kubectl exec -n demo deploy/binpack -- env | grep GPU         what a container is told
  kubectl scale -n demo deploy/training --replicas=6            ask for more than there is ...
  kubectl get events -n demo --field-selector reason=FailedScheduling     ... and read why it waits

  make demo-down                                                remove all of it
"""


def up(name: str) -> None:
    """The cluster, the stack, the pods, the table."""
    world = KindEnvironment(name, MACHINES)
    world.start()
    with step("run sample pods that share GPUs"):
        _samples(world)
    print()
    print(table.inspect(world), end="")
    print(NEXT.format(kubeconfig=world.kubectl.kubeconfig, path=world.tools), end="")


def _samples(world: KindEnvironment) -> None:
    objects = [
        workloads.deployment(name, units, replicas=count, namespace=SPACE, image=world.image)
        for name, (units, count) in SAMPLES.items()
    ]
    world.kubectl.apply(workloads.namespace(SPACE), *objects)
    for name in SAMPLES:
        world.kubectl("rollout", "status", f"deployment/{name}", "-n", SPACE, "--timeout=110s")


def main() -> int:
    """Exit code 0, or 1 with one sentence of what to do."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--name", default=NAME, help="of the kind cluster (default: %(default)s)")
    options = parser.parse_args()
    try:
        up(options.name) if options.action == "up" else KindEnvironment(options.name).stop()
    except (ClusterError, UnavailableError, KubectlError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
