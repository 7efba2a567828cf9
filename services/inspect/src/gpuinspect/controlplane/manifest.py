"""The static pod of kube-scheduler as kubeadm writes it: what it says, and our few edits.

Lines are put in and taken out where they belong, so that comments and order stay. Where a manifest
is written so that this does not give exactly the intended object (lists in one line, say), it is
written anew and only its comments are lost; nothing is ever written that means anything else.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from gpuinspect.errors import ControlPlaneError

FOLDER: Final = "/etc/kubernetes/gpushare"
"""Where all files of ours are: on the node, and at the same path in the pod."""
CONFIG: Final = "config"
POLICY: Final = "policy-config-file"
_VOLUME: Final = "gpushare"
_PROGRAM: Final = "kube-scheduler"


class StaticPod(msgspec.Struct, frozen=True):
    """What matters of the manifest.

    Attributes:
        flags: of kube-scheduler, without the dashes; one without a value is ``true``.
        image: of kube-scheduler.
    """

    text: str
    flags: Mapping[str, str]
    image: str

    @property
    def ours(self) -> str:
        """Path of our configuration that it uses; empty where it uses none of ours."""
        path = self.flags.get(CONFIG, "")
        return path if path.startswith(f"{FOLDER}/") else ""


class _Places(NamedTuple):
    """Where in the text the lists are that are edited."""

    words: yaml.SequenceNode
    mounts: yaml.SequenceNode
    volumes: yaml.SequenceNode


def read(text: str) -> StaticPod:
    """Understand a manifest.

    Raises:
        ControlPlaneError: it is no pod that runs kube-scheduler with flags of its own.
    """
    document = _document(text)
    container = _container(document)
    flags = {name: value for _, name, value in _flags(container[_key(container)])}
    return StaticPod(text, flags, str(container.get("image", "")))


def configured(text: str, config: str, *, without: Sequence[str] = ()) -> str:
    """The manifest with ``--config`` set to a file of :data:`FOLDER`, which is mounted.

    Args:
        text: a manifest that :func:`read` understands.
        config: path of the configuration.
        without: names of flags that are taken out.
    """
    wanted = _edited(_document(text), config, {CONFIG, *without})
    lines = _edited_lines(text, config, {CONFIG, *without})
    if lines is not None and _same(lines, wanted):
        return lines
    return yaml.safe_dump(wanted, sort_keys=False)


def _document(text: str) -> dict[str, Any]:
    """The object; it has a container with at least one word of a command line."""
    try:
        document: dict[str, Any] = yaml.safe_load(text)
        container = _container(document)
        usable = bool(container[_key(container)])
    except (yaml.YAMLError, TypeError, KeyError, StopIteration):
        usable = False
    if not usable:
        raise ControlPlaneError(
            "the manifest is not a pod that runs kube-scheduler as kubeadm sets it up"
        )
    return document


def _container(document: Mapping[str, Any]) -> dict[str, Any]:
    """The container that runs kube-scheduler."""
    return next(each for each in document["spec"]["containers"] if _schedules(each))


def _schedules(container: Mapping[str, Any]) -> bool:
    program = [*(container.get("command") or []), container.get("name")][0]
    return str(program).endswith(_PROGRAM)


def _key(container: Mapping[str, Any]) -> str:
    """Where its flags stand: behind the program's name, or in a list of their own."""
    return "args" if container.get("args") else "command"


def _flags(words: Sequence[str]) -> list[tuple[int, str, str]]:
    """Position, name and value of every flag; a value in a word of its own counts."""
    found = []
    for position, word in enumerate(map(str, words)):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = str(words[position + 1]) if position + 1 < len(words) else "-"
        if not equals:
            value = "true" if following.startswith("-") else following
        found.append((position, name, value))
    return found


def _gone(words: Sequence[str], names: set[str]) -> set[int]:
    """Positions of the words that make up these flags."""
    gone = set()
    for position, name, _ in _flags(words):
        if name in names:
            gone.add(position)
            behind = words[position + 1 : position + 2]
            if "=" not in str(words[position]) and behind and not str(behind[0]).startswith("-"):
                gone.add(position + 1)
    return gone


def _first(words: Sequence[str]) -> int:
    """Where a flag may be put in: in front of all others, behind the program's name."""
    return 0 if str(words[0]).startswith("-") else 1


def _edited(document: dict[str, Any], config: str, names: set[str]) -> dict[str, Any]:
    """The object that is meant."""
    wanted = copy.deepcopy(document)
    container = _container(wanted)
    key = _key(container)
    words, first = container[key], _first(container[key])
    gone = _gone(words, names)
    kept = [word for position, word in enumerate(words) if position not in gone]
    container[key] = [*kept[:first], f"--config={config}", *kept[first:]]
    container["volumeMounts"] = [_mount(), *(container.get("volumeMounts") or [])]
    wanted["spec"]["volumes"] = [_volume(), *(wanted["spec"].get("volumes") or [])]
    return wanted


def _mount() -> dict[str, Any]:
    return {"mountPath": FOLDER, "name": _VOLUME, "readOnly": True}


def _volume() -> dict[str, Any]:
    return {"hostPath": {"path": FOLDER, "type": "Directory"}, "name": _VOLUME}


def _edited_lines(text: str, config: str, names: set[str]) -> str | None:
    """The same by lines; ``None`` where the lists are not all there, one item a line."""
    places = _places(text)
    if places is None or any(each.flow_style or not each.value for each in places):
        return None
    words = [str(item.value) for item in places.words.value]
    inserted = {
        _line_of(places.words, _first(words)): (places.words, f"--config={config}\n"),
        places.mounts.start_mark.line: (places.mounts, yaml.safe_dump(_mount())),
        places.volumes.start_mark.line: (places.volumes, yaml.safe_dump(_volume())),
    }
    gone = {places.words.value[position].start_mark.line for position in _gone(words, names)}
    made = []
    for number, line in enumerate([*text.splitlines(keepends=True), ""]):
        if number in inserted:
            made.append(_item(*inserted[number]))
        if number not in gone:
            made.append(line)
    return "".join(made)


def _line_of(sequence: yaml.SequenceNode, position: int) -> int:
    """Where an item begins, or would begin at the end."""
    if position < len(sequence.value):
        return int(sequence.value[position].start_mark.line)
    return int(sequence.value[-1].end_mark.line) + 1


def _item(sequence: yaml.SequenceNode, item: str) -> str:
    """One item of a list, as indented as its others."""
    margin = " " * sequence.start_mark.column
    first, *rest = item.splitlines()
    return "".join([f"{margin}- {first}\n", *(f"{margin}  {line}\n" for line in rest)])


def _places(text: str) -> _Places | None:
    try:
        spec = _child(yaml.compose(text, Loader=yaml.SafeLoader), "spec")
        containers = _child(spec, "containers").value
        container = next(each for each in containers if _schedules(_plain(each)))
        words = _child(container, _key(_plain(container)))
        return _Places(words, _child(container, "volumeMounts"), _child(spec, "volumes"))
    except (KeyError, StopIteration):
        return None


def _plain(node: yaml.Node) -> dict[str, Any]:
    """The object that a node stands for."""
    found: dict[str, Any] = yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))
    return found


def _child(node: Any, key: str) -> Any:
    for name, value in node.value:
        if name.value == key:
            return value
    raise KeyError(key)


def _same(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(yaml.safe_load(text) == wanted)
    except yaml.YAMLError:
        return False
