"""What the cluster's own scheduler is configured by: its present configuration, and our extender.

With ``--config`` kube-scheduler takes no notice of many of its flags, so those that kubeadm or a
person has set are carried over into the file.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from gpuinspect.errors import ControlPlaneError

PATH: Final = "/gpushare-scheduler"
"""Suffixes of the address of an extender, of gpushare or of the original."""
_GROUP: Final = "kubescheduler.config.k8s.io"
_VERSIONS: Final = ((25, "v1"), (23, "v1beta3"), (22, "v1beta2"), (19, "v1beta1"))
_HEAD: Final = "# Made by gpushare install-scheduler; gpushare uninstall-scheduler takes it out.\n"

Object = dict[str, Any]


class SchedulerOffer(msgspec.Struct, frozen=True):
    """What the installed chart offers to the cluster's scheduler.

    Attributes:
        extender: an entry of ``extenders``, complete: its address is one that the node reaches.
        api_version: of the configuration that it was made for.
    """

    extender: Mapping[str, Any]
    api_version: str


def _truth(text: str) -> bool:
    return text.lower() in {"true", "1", "t"}


_FLAGS: Final[Mapping[str, tuple[str, str, Callable[[str], Any]]]] = {
    "kubeconfig": ("clientConnection", "kubeconfig", str),
    "kube-api-qps": ("clientConnection", "qps", float),
    "kube-api-burst": ("clientConnection", "burst", int),
    "kube-api-content-type": ("clientConnection", "contentType", str),
    "leader-elect": ("leaderElection", "leaderElect", _truth),
    "leader-elect-lease-duration": ("leaderElection", "leaseDuration", str),
    "leader-elect-renew-deadline": ("leaderElection", "renewDeadline", str),
    "leader-elect-retry-period": ("leaderElection", "retryPeriod", str),
    "leader-elect-resource-lock": ("leaderElection", "resourceLock", str),
    "leader-elect-resource-name": ("leaderElection", "resourceName", str),
    "leader-elect-resource-namespace": ("leaderElection", "resourceNamespace", str),
    "profiling": ("", "enableProfiling", _truth),
    "contention-profiling": ("", "enableContentionProfiling", _truth),
}
"""Flags that a configuration file overrules: where they belong in it; no part is the top level."""


def render(present: str | None, flags: Mapping[str, str], image: str, offer: SchedulerOffer) -> str:
    """The text of the configuration file.

    Args:
        present: text of the file that ``--config`` names now; ``None`` where there is no such flag.
        flags: of kube-scheduler, as the manifest has them.
        image: of kube-scheduler, whose tag determines the version of the file.
        offer: what to put in.

    Raises:
        ControlPlaneError: gpushare's extender cannot be added to the present configuration.
    """
    config = _fresh(flags, image, offer) if present is None else _parsed(present)
    others = [each for each in config.get("extenders") or () if not is_ours(each)]
    for each in others:
        if each.get("bindVerb"):
            raise ControlPlaneError(
                f"the extender {each.get('urlPrefix')} already binds pods, and only "
                "one extender may"
            )
    config["extenders"] = [*others, dict(offer.extender)]
    return _HEAD + yaml.safe_dump(config, sort_keys=False)


def is_ours(extender: Mapping[str, Any]) -> bool:
    """True for the entry of an extender of gpushare or of the original."""
    return urlsplit(str(extender.get("urlPrefix", ""))).path.rstrip("/") == PATH


def check_policy(text: str) -> None:
    """Raise unless a policy file of the original stack holds nothing but its extender.

    Such a file overrides the configuration, so its flag must be removed with all its content.
    """
    try:
        policy = yaml.safe_load(text)
        more = set(policy) - {"kind", "apiVersion", "extenders"}
        known = all(map(is_ours, policy.get("extenders") or ()))
    except (yaml.YAMLError, TypeError, AttributeError) as error:
        raise ControlPlaneError("the file of --policy-config-file cannot be read") from error
    if more or not known:
        raise ControlPlaneError(
            "--policy-config-file names a policy with more than the extender of gpushare, and it"
            " overrides a configuration: move its content into a file for --config first"
        )


def api_version(image: str) -> str | None:
    """The newest configuration version that a released kube-scheduler reads; by its tag."""
    found = re.search(r":v1\.(\d+)\.", image)
    if found is None:
        return None
    minor = int(found.group(1))
    return next((f"{_GROUP}/{name}" for since, name in _VERSIONS if minor >= since), None)


def _fresh(flags: Mapping[str, str], image: str, offer: SchedulerOffer) -> Object:
    config: Object = {
        "apiVersion": api_version(image) or offer.api_version,
        "kind": "KubeSchedulerConfiguration",
    }
    for name, (part, key, convert) in _FLAGS.items():
        if name in flags:
            parent = config.setdefault(part, {}) if part else config
            parent[key] = convert(flags[name])
    return config


def _parsed(text: str) -> Object:
    try:
        config = yaml.safe_load(text)
        kind = config["kind"]
    except (yaml.YAMLError, TypeError, KeyError):
        kind = ""
    if kind != "KubeSchedulerConfiguration":
        raise ControlPlaneError("the file of --config is not a KubeSchedulerConfiguration")
    found: Object = config
    return found
