"""All checks, in the order in which an installation comes to life, and the objects they need."""

from typing import Final

from gpuinspect.collect import CONFIG_MAPS, Wanted
from gpuinspect.doctor import accounting, inventories, nodes, requests, stack

CHECKS: Final = (
    *nodes.check.checks,
    *inventories.check.checks,
    *stack.check.checks,
    *requests.check.checks,
    *accounting.check.checks,
)

WANTED: Final = (
    CONFIG_MAPS,
    Wanted(
        "ConfigMap",
        "/api/v1/configmaps",
        {"labelSelector": "app.kubernetes.io/component=scheduler"},
    ),
    Wanted("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
    Wanted(
        "MutatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    ),
)
"""What is read besides nodes and pods."""
