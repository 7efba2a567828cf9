"""The static pod of kube-scheduler as kubeadm writes it: its fields, and a few edits.

ruamel.yaml edits the text, so that comments and order stay. PyYAML, which reads YAML 1.1 as kubelet
does, checks that the result is the intended object; if it ever were not, the object is written anew
and only comments are lost.
"""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, Final

import msgspec
import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.util import load_yaml_guess_indent

from gpuinspect.cluster.kubeschedulers import INSTALL_FOLDER
from gpuinspect.errors import ControlPlaneError

FOLDER: Final = INSTALL_FOLDER
CONFIG: Final = "config"
POLICY: Final = "policy-config-file"
_VOLUME: Final = "gpushare"
_PROGRAM: Final = "kube-scheduler"
_WIDTH: Final = 4096
"""No line is folded."""


class StaticPod(msgspec.Struct, frozen=True):
    """What matters of the manifest.

    Attributes:
        flags: of kube-scheduler, without the dashes; one without a value is ``true``.
    """

    flags: Mapping[str, str]
    image: str

    @property
    def ours(self) -> str:
        """Path of the configuration of gpushare that the pod uses; empty for none."""
        path = self.flags.get(CONFIG, "")
        return path if path.startswith(f"{FOLDER}/") else ""


def read(text: str) -> StaticPod:
    """Understand a manifest.

    Raises:
        ControlPlaneError: it is no pod that runs kube-scheduler with flags of its own.
    """
    document = _document(text)
    container = _container(document)
    flags = {name: value for _, name, value in _flags(container[_key(container)])}
    return StaticPod(flags, str(container.get("image", "")))


def configured(text: str, config: str, *, without: Sequence[str] = ()) -> str:
    """The manifest with ``--config`` set to a file of :data:`FOLDER`, which is mounted.

    Args:
        text: a manifest that :func:`read` understands.
        config: path of the configuration.
        without: names of flags that are taken out.
    """
    names = {CONFIG, *without}
    wanted = _document(text)
    _edit(wanted, config, names)
    edited = _edited_text(text, config, names)
    return edited if _same(edited, wanted) else yaml.safe_dump(wanted, sort_keys=False)


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
    """Index at which a flag may be inserted: before all others, after the program's name."""
    return 0 if str(words[0]).startswith("-") else 1


def _edit(document: Any, config: str, names: set[str]) -> None:
    """Change an object of either library."""
    container = _container(document)
    words = container[_key(container)]
    first = _first(words)
    for position in sorted(_gone(words, names), reverse=True):
        del words[position]
    words.insert(first, f"--config={config}")
    _prepend(container, "volumeMounts", {"mountPath": FOLDER, "name": _VOLUME, "readOnly": True})
    volume = {"hostPath": {"path": FOLDER, "type": "Directory"}, "name": _VOLUME}
    _prepend(document["spec"], "volumes", volume)


def _prepend(parent: Any, key: str, item: dict[str, Any]) -> None:
    if parent.get(key):
        parent[key].insert(0, item)
    else:
        parent[key] = [item]


def _edited_text(text: str, config: str, names: set[str]) -> str:
    """The text after the edit, indented as it was; empty where the library cannot read it."""
    try:
        _, indent, offset = load_yaml_guess_indent(text)
        editor = YAML()
        editor.preserve_quotes = True
        editor.width = _WIDTH
        editor.indent(mapping=2, sequence=indent or 2, offset=offset or 0)
        document = editor.load(text)
        _edit(document, config, names)
        written = StringIO()
        editor.dump(document, written)
    except YAMLError:
        return ""
    return written.getvalue()


def _same(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(yaml.safe_load(text) == wanted)
    except yaml.YAMLError:
        return False
