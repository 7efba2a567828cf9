"""All checks, in the order in which an installation comes to life, and the objects they need."""

from typing import Final

from gpuinspect.collect import CONFIG_MAPS, Wanted
from gpuinspect.doctor import accounting, inventories, nodes, requests, stack
from gpuinspect.schedulers import SCHEDULER_CONFIGS, WEBHOOKS

CHECKS: Final = (
    *nodes.check.checks,
    *inventories.check.checks,
    *stack.check.checks,
    *requests.check.checks,
    *accounting.check.checks,
)

WANTED: Final = (
    CONFIG_MAPS,
    SCHEDULER_CONFIGS,
    Wanted("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
    WEBHOOKS,
)
"""What is read besides nodes and pods."""
