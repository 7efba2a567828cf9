"""Takes away the objects of pods that have ended, where kubelet is late to do so.

Kubelet of 1.20 asks every ten seconds only whether an ended pod is cleaned up, and until then its
object stays; newer ones see to it at once. A DaemonSet's update, Helm and `kubectl delete` all wait
for the object. Nothing is ended here: a pod was asked to go, and kubelet has told the end of all
its containers, before its object is taken away; a pod of the same name that came since stays.
"""

import json
import subprocess
import threading

import msgspec

from environments.kubectl import Kubectl

PAUSE_SECONDS = 1.0
_FIELDS = (
    "{.metadata.namespace}",
    "{.metadata.name}",
    "{.metadata.uid}",
    "{.metadata.deletionTimestamp}",
    "{.spec.containers[*].name}",
    "{.status.containerStatuses[*].state.terminated.exitCode}",
)
_LINE = "|".join(_FIELDS) + '{"\\n"}'


class Ended(msgspec.Struct, frozen=True):
    """A pod that was asked to go and has: what it takes to name this one and no other."""

    namespace: str
    name: str
    uid: str


def ended(line: str) -> Ended | None:
    """The pod that a line of the watch tells of, if it was asked to go and all of it has ended."""
    namespace, name, uid, asked, containers, codes = line.split("|")
    if not asked or len(codes.split()) < len(containers.split()):
        return None
    return Ended(namespace, name, uid)


class EndedPods:
    """Follows all pods of a cluster from :meth:`start` to :meth:`stop`.

    Args:
        kubectl: of the cluster.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._over = threading.Event()
        self._watch: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, name="ended-pods", daemon=True)

    def start(self) -> None:
        """Begin, beside whatever else this process does."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the cluster is followed."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the watch; returns when nothing of it runs any more."""
        self._over.set()
        while self.alive:
            if self._watch is not None:
                self._watch.terminate()
            self._thread.join(PAUSE_SECONDS)

    def _follow(self) -> None:
        """Watch anew whenever a watch ends: API servers come and go in the cases."""
        while not self._over.is_set():
            self._watch_once()
            self._over.wait(PAUSE_SECONDS)

    def _watch_once(self) -> None:
        words = ("get", "pods", "--all-namespaces", "--watch", "-o", f"jsonpath={_LINE}")
        with subprocess.Popen(
            [str(self._kubectl.binary), *words],
            env=self._kubectl.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as watch:
            self._watch = watch
            for line in watch.stdout or ():
                pod = ended(line.rstrip("\n"))
                if pod is not None:
                    self._take_away(pod)

    def _take_away(self, pod: Ended) -> None:
        """By its uid; that it is gone by now is as good."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        self._kubectl.attempt("delete", "--raw", path, "-f", "-", stdin=json.dumps(options))
