"""Variables of a pod that would choose its GPUs or replace its limit.

kubelet appends a container's own environment to what the device plugin answered, so the pod's value
wins unless CDI delivers ours. What ``envFrom`` takes from ConfigMaps and Secrets is not in the
pod; only a prefix that could make such a name is.
"""

from collections.abc import Iterable

from gpucore.wire.names import ENV_VISIBLE_DEVICES, LIMITING_ENV
from gpucore.wire.pod.spec import Container


def overrides(
    containers: Iterable[Container], *, requests_gpus: bool
) -> dict[str, tuple[str, ...]]:
    """By container, the variables that it may not set; containers without any are left out."""
    protected = {ENV_VISIBLE_DEVICES, *(LIMITING_ENV if requests_gpus else ())}
    found = {container.name: _replaced(container, protected) for container in containers}
    return {name: variables for name, variables in found.items() if variables}


def _replaced(container: Container, protected: set[str]) -> tuple[str, ...]:
    prefixes = container.env_prefixes
    named = protected.intersection(container.env)
    made = {name for name in protected if prefixes and name.startswith(prefixes)}
    return tuple(sorted(named | made))
