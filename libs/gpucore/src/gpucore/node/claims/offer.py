"""How a node offers its GPUs: as devices of the device plugin, or as claims.

The label of the node decides, and the setting of the agent where the label is absent. While pods
hold shares of one kind the node keeps offering that kind: kube-scheduler counts claims and not
devices, so the same memory would be allocated twice.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpucore.units import GpuIndex, listed
from gpucore.wire.names import API, API_AUTO, API_CLAIMS, API_DEVICES

_CHOICES: Final = (API_DEVICES, API_CLAIMS, API_AUTO)
DISABLED: Final = "claims are disabled: install the chart with claims.enabled=true"
UNSUPPORTED: Final = (
    "this cluster has no ResourceSlices with consumable capacity: claims need Kubernetes 1.36 "
    "or newer with default feature gates"
)


class Offer(msgspec.Struct, frozen=True):
    """What a node offers.

    Attributes:
        api: ``devices`` or ``claims``; empty: nothing, for now or because shares of both run.
        why: why it is not what was requested; empty where it is.
    """

    api: str
    why: str = ""


def requested(
    labels: Mapping[str, str], default: str, *, enabled: bool, supported: bool | None
) -> Offer:
    """What label and setting request; an API that cannot be had is answered with ``devices``.

    Args:
        labels: of the Node.
        default: setting of the agent: ``devices``, ``claims`` or ``auto``.
        enabled: the agent has what it needs to prepare claims.
        supported: the API server has consumable capacity; ``None`` while that is not known.
    """
    text = labels.get(API, default)
    if text not in _CHOICES:
        choices = ", ".join(_CHOICES)
        return Offer(API_DEVICES, f"the label {API}={text[:40]} is none of {choices}")
    if text == API_DEVICES or (text == API_AUTO and not enabled):
        return Offer(API_DEVICES)
    if not enabled:
        return Offer(API_DEVICES, DISABLED)
    if supported is None:
        return Offer("")
    if supported:
        return Offer(API_CLAIMS)
    return Offer(API_DEVICES, "" if text == API_AUTO else UNSUPPORTED)


def settled(wanted: Offer, granted: Collection[GpuIndex] | None, claims: Collection[str]) -> Offer:
    """What the node offers now.

    Args:
        wanted: see :func:`requested`.
        granted: GPUs that pods hold through the device plugin; ``None`` before kubelet lists them.
        claims: ``<namespace>/<name>`` of the prepared claims.
    """
    if granted and claims:
        both = f"pods hold GPUs {_list(granted)} as devices and the claims {_list(claims)}"
        return Offer("", f"{both}: delete one kind of them")
    if claims:
        why = f"pods use the claims {_list(claims)}: drain the node to offer devices"
        return Offer(API_CLAIMS, why if wanted.api == API_DEVICES else "")
    if granted and wanted.api != API_DEVICES:
        why = f"pods hold GPUs {_list(granted)} through the device plugin"
        return Offer(API_DEVICES, f"{why}: drain the node to offer claims")
    if granted is None and wanted.api == API_CLAIMS:
        return Offer("")
    return wanted


def _list(items: Collection[object]) -> str:
    """At most five of them."""
    return listed(sorted(map(str, items)), 5)
