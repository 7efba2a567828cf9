"""All checks, in the order in which an installation comes to life, and the objects they need."""

from typing import Final

from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import CLAIM_LISTS, CONFIG_MAPS, ListRequest
from gpuinspect.cluster.schedulers import SCHEDULER_CONFIGS, WEBHOOKS
from gpuinspect.doctor import (
    accounting,
    claims,
    controlplane,
    inventories,
    nodes,
    nomination,
    requests,
    stack,
)

CHECKS: Final = (
    *nodes.check.checks,
    *inventories.check.checks,
    *stack.check.checks,
    *controlplane.check.checks,
    *nomination.check.checks,
    *requests.check.checks,
    *accounting.check.checks,
    *claims.check.checks,
)

WANTED: Final = (
    CONFIG_MAPS,
    SCHEDULER_CONFIGS,
    ListRequest("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
    WEBHOOKS,
    *nomination.WANTED,
    *CLAIM_LISTS,
    DEVICE_CLASSES,
    claim_templates(""),
)
"""What is read besides nodes and pods."""
