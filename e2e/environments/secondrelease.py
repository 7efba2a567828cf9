"""A second release of the chart beside the stack, for what the stack itself runs without.

It brings no device plugin, since a node has one, no page and no webhook; both extenders fold the
same cluster.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from environments import helm, rollouts
from environments.kind import CHART, NAMESPACE, KindEnvironment
from environments.waiting import until


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
        chosen = f"app.kubernetes.io/instance={name}"
        rollouts.wait(environment.kubectl, NAMESPACE, labels=chosen)
        yield name
    finally:
        helm.uninstall(name, NAMESPACE, environment.kubeconfig)
        until("its pods are gone", lambda: not _pods(environment, name))


def _pods(environment: KindEnvironment, name: str) -> list[object]:
    chosen = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/instance={name}")
    return list(environment.kubectl.items("pods", *chosen))
