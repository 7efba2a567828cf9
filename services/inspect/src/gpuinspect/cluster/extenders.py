"""The extender's pods, and the flags that they run with."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.snapshots import Snapshot

EXTENDER: Final = "extender"
"""Name of the container."""
_COMPONENT: Final = "app.kubernetes.io/component"


def extenders(snapshot: Snapshot) -> list[tuple[Pod, msgspec.Raw]]:
    """The extenders; whoever creates a pod that looks like one later is not heard."""
    return sorted(
        _of_any_age(snapshot), key=lambda each: (each[0].creation, each[0].namespace, each[0].name)
    )


def _of_any_age(snapshot: Snapshot) -> Iterator[tuple[Pod, msgspec.Raw]]:
    for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
        ours = pod.labels.get(_COMPONENT) in {"scheduler", "extender"}
        live = not pod.finished and not pod.terminating
        if ours and live and any(box.name == EXTENDER for box in pod.containers):
            yield pod, raw


class _Box(msgspec.Struct):
    name: str = ""
    args: list[str] | None = None
    command: list[str] | None = None


class _Spec(msgspec.Struct):
    containers: list[_Box] | None = None


class _Pod(msgspec.Struct):
    spec: _Spec | None = None


def flags_of(raw: msgspec.Raw) -> dict[str, str]:
    """Flags of the extender's container; of a repeated one the last, as the program reads them."""
    spec = msgspec.json.decode(raw, type=_Pod).spec or _Spec()
    boxes = [box for box in spec.containers or () if box.name == EXTENDER]
    words = [word for box in boxes for word in (*(box.command or ()), *(box.args or ()))]
    return dict(_flags(words))


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            following = words[place + 1] if place + 1 < len(words) else ""
            yield name, value if equals else following
