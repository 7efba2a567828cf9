"""Users of the pods on a GPU behind MPS, whose daemon serves the clients of one user at a time.

A client of another user waits until the last client of the first has ended, however long that
takes. In multi-user mode nobody waits.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpucore.wire.names import Names
from gpuinspect.cluster.rawpods import RawContainer, RawPodSpec, spec_of
from gpuinspect.cluster.release import own_plugins
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.verify.objects import USER
from gpuinspect.verify.targets import ProofTarget, device_now

MULTI_USER_FLAGS: Final = {"--mps-multi-user": True, "--no-mps-multi-user": False}
"""Of the device plugin; the last one counts."""
MULTI_USER_VARIABLE: Final = "mps_multi_user"
"""Of the device plugin, in any case; a flag takes precedence."""
SHOWN: Final = 3
"""Users that a sentence names: a GPU may have pods of many."""
_TRUE: Final = frozenset({"true", "t", "yes", "y", "on", "1"})


def waits_for(snapshot: Snapshot, names: Names, target: ProofTarget) -> str:
    """Why a pod of a check may wait for pods of other users; empty where MPS makes none wait."""
    if "mps" not in target.mode or multi_user(snapshot, target.node):
        return ""
    found = sorted(set(_users(snapshot, names, target)) - {_named(USER)})
    if not found:
        return ""
    shown = found[:SHOWN] + ([f"{len(found) - SHOWN} more"] if len(found) > SHOWN else [])
    return (
        f"MPS serves one user at a time, and the pods of verify run as user {USER}, others on this"
        f" GPU as {', '.join(shown)}: mps.multiUser in the values serves all at once"
    )


def multi_user(snapshot: Snapshot, node: str) -> bool:
    """Whether the device plugin of a node starts its MPS daemons in multi-user mode."""
    for pod, raw in own_plugins(snapshot):
        if pod.node == node:
            return any(map(_is_multi_user, spec_of(raw).containers or ()))
    return False


def _is_multi_user(container: RawContainer) -> bool:
    flags = [MULTI_USER_FLAGS[word] for word in container.words if word in MULTI_USER_FLAGS]
    if flags:
        return flags[-1]
    variables = (each for each in container.env or () if each.name.lower() == MULTI_USER_VARIABLE)
    found = [each.value or "" for each in variables]
    return bool(found) and found[-1].lower() in _TRUE


def _users(snapshot: Snapshot, names: Names, target: ProofTarget) -> Iterator[str]:
    """The users of the pods that hold a part of the GPU."""
    device = device_now(snapshot, names, target)
    holders = device.holders if device is not None else {}
    for pod, raw in snapshot.raw_pods():
        if pod.uid in holders:
            yield from _users_of(spec_of(raw))


def _users_of(spec: RawPodSpec) -> Iterable[str]:
    """The users of a pod's containers: in a user namespace an id is another user on the node."""
    inside = spec.host_users is False
    for container in spec.containers or ():
        for context in (container.security_context, spec.security_context):
            if context is not None and context.run_as_user is not None:
                yield _named(context.run_as_user) + (" of a user namespace" if inside else "")
                break
        else:
            yield "the user of an image"


def _named(user: int) -> str:
    return f"user {user}"
