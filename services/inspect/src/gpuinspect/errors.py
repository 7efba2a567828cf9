"""Why a command cannot answer, in words for the person at the terminal.

::

    InspectError            printed as ``error: ...``; the command ends with exit code 1
    ├── ClusterError        the API server did not answer, or refused
    │   └── ForbiddenError  the credentials do not allow it
    ├── SnapshotError       the file is no snapshot
    ├── NotFoundError       the cluster has no such node or pod
    ├── PrometheusError     Prometheus did not answer, or it is none
    └── ControlPlaneError   this node's kube-scheduler cannot be set up so
"""


class InspectError(Exception):
    """The command cannot answer; the text says why and what to do."""


class ClusterError(InspectError):
    """The API server did not answer, or answered with a failure."""


class ForbiddenError(ClusterError):
    """The credentials do not allow this; some questions can do without."""


class SnapshotError(InspectError):
    """The file cannot be read, or is not what ``kubectl get ... -o json`` prints."""


class NotFoundError(InspectError):
    """The cluster, or the snapshot, has no such object."""


class PrometheusError(InspectError):
    """Prometheus did not answer, or what answers is no Prometheus."""


class ControlPlaneError(InspectError):
    """The kube-scheduler of this node cannot be set up so, or did not start so."""
