"""Build what a test cluster needs without an image registry: the one interface of this package.

Kubernetes and its companions are compiled from Go modules or Debian's source package, node and base
images are made from Debian packages. Results are kept in the cache folder, named by a key of their
inputs; `ensure_...` returns at once when the result is there. Other packages import these names
only. `docs/building-offline.md` describes it.
"""

from offline.componentimages import ensure_pause as ensure_pause_image
from offline.cosign import ensure as ensure_cosign
from offline.debianimage import ensure as ensure_debian_image
from offline.earlier import CONTAINERD as EARLIER_CONTAINERD
from offline.earlier import KUBELET as EARLIER_KUBELET
from offline.earlier import ensure_containerd as ensure_earlier_containerd
from offline.earlier import ensure_kubelet as ensure_earlier_kubelet
from offline.helmprogram import ensure as ensure_helm
from offline.kindprogram import ensure as ensure_kind
from offline.kindprogram import pinned as kind_version
from offline.kubernetes import ensure as ensure_programs
from offline.kueue import KueueFiles
from offline.kueue import ensure as ensure_kueue
from offline.nodebuild import ensure as ensure_node_image
from offline.nodebuild import name as node_image_name
from offline.nvidiapackages import ensure_mps_control, ensure_nvml
from offline.packages import archive as check_package_archive
from offline.prometheus import ensure as ensure_prometheus
from offline.pythonimage import ensure as ensure_base_image
from offline.pythonimage import name as base_image_name
from offline.pythonprograms import ensure_monitors
from offline.registry import ensure as ensure_registry
from offline.release import NEWEST, OLDEST, minor
from offline.release import chosen as chosen_version
from offline.release import requested as requested_version

__all__ = [
    "EARLIER_CONTAINERD",
    "EARLIER_KUBELET",
    "NEWEST",
    "OLDEST",
    "KueueFiles",
    "base_image_name",
    "check_package_archive",
    "chosen_version",
    "ensure_base_image",
    "ensure_cosign",
    "ensure_debian_image",
    "ensure_earlier_containerd",
    "ensure_earlier_kubelet",
    "ensure_helm",
    "ensure_kind",
    "ensure_kueue",
    "ensure_monitors",
    "ensure_mps_control",
    "ensure_node_image",
    "ensure_nvml",
    "ensure_pause_image",
    "ensure_programs",
    "ensure_prometheus",
    "ensure_registry",
    "kind_version",
    "minor",
    "node_image_name",
    "requested_version",
]
