"""Takes away the objects of pods that have ended, where kubelet is late to do so.

Kubelet of 1.20 checks only every ten seconds whether an ended pod is cleaned up, and until then its
object stays; newer ones see to it at once. A DaemonSet's update, Helm and `kubectl delete` all wait
for the object. Nothing is ended here: a pod was deleted, and by kubelet's status none of its
containers runs any more, before its object is taken away; one of the same name that came since
stays.

For a container that kubelet removed before it reported its end, it reports for up to a minute that
it waits to be created. That is an end too where it was seen to run before.
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
    "{.status.containerStatuses[*].state.running.startedAt}",
    "{.status.containerStatuses[*].state.terminated.exitCode}",
)
_LINE = "|".join(_FIELDS) + '{"\\n"}'


class Seen(msgspec.Struct, frozen=True):
    """A pod as the watch reports it, with all it takes to name this one and no other.

    Attributes:
        deleted: its deletion was requested.
        runs: at least one of its containers does.
        over: all of them have ended.
    """

    namespace: str
    name: str
    uid: str
    deleted: bool
    runs: bool
    over: bool


def seen(line: str) -> Seen:
    """What a line of the watch reports."""
    namespace, name, uid, deleted, containers, running, codes = line.split("|")
    over = len(codes.split()) == len(containers.split())
    return Seen(namespace, name, uid, deleted=bool(deleted), runs=bool(running), over=over)


class EndedPods:
    """Follows all pods of a cluster from :meth:`start` to :meth:`stop`.

    Args:
        kubectl: of the cluster.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._over = threading.Event()
        self._ran: set[str] = set()
        self._gone: set[str] = set()
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
                if line.endswith("\n"):  # kubectl may be ended in the middle of its last line
                    self._follow_pod(seen(line.rstrip("\n")))

    def _follow_pod(self, pod: Seen) -> None:
        if self._ended(pod):
            self._take_away(pod)

    def _ended(self, pod: Seen) -> bool:
        if pod.runs:
            self._ran.add(pod.uid)
        if (
            pod.runs or pod.uid in self._gone
        ):  # a watch reports the last state, too, of a pod that is gone
            return False
        return pod.deleted and (pod.over or pod.uid in self._ran)

    def _take_away(self, pod: Seen) -> None:
        """By its uid; that it is gone by now is as good."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        done = self._kubectl.attempt("delete", "--raw", path, "-f", "-", stdin=json.dumps(options))
        if done.returncode == 0:
            self._gone.add(pod.uid)
