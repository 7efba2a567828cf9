"""A second release of the chart beside the stack, for what the stack itself runs without.

It brings no device plugin, since a node has one, no page and no webhook; both extenders fold the
same cluster.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from environments import helm
from environments.kind import CHART, NAMESPACE, KindEnvironment
from host.waiting import until

ROLLOUT_SECONDS = 120


@contextmanager
def release(environment: KindEnvironment, name: str, values: Mapping[str, object]) -> Iterator[str]:
    """Install, wait until all its Deployments have all their pods; remove it in any case.

    Args:
        environment: with the stack.
        name: of the release.
        values: put over those of the environment, key by key of the first level.
    """
    absent = {
        "devicePlugin": {"nodeSelector": {"gpushare-e2e": "nowhere"}},
        "dashboard": {"enabled": False},
        "webhook": {"enabled": False},
    }
    merged = {**environment.values, **absent, **values}
    try:
        helm.install(name, CHART, NAMESPACE, merged, environment.kubeconfig)
        _wait(environment, name)
        yield name
    finally:
        helm.uninstall(name, NAMESPACE, environment.kubeconfig)
        until("its pods are gone", lambda: not _pods(environment, name), seconds=ROLLOUT_SECONDS)


def _wait(environment: KindEnvironment, name: str) -> None:
    chosen = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/instance={name}", "-o", "name")
    for deployment in environment.kubectl("get", "deployment", *chosen).split():
        limit = f"--timeout={ROLLOUT_SECONDS}s"
        environment.kubectl("rollout", "status", deployment, "-n", NAMESPACE, limit)


def _pods(environment: KindEnvironment, name: str) -> list[object]:
    chosen = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/instance={name}")
    return list(environment.kubectl.items("pods", *chosen))
