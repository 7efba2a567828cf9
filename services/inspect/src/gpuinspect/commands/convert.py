"""``gpushare convert``: manifests with shares as manifests with ResourceClaims; creates nothing."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
import yaml

from gpucore.claims.convert import ClaimRequests
from gpucore.claims.convert import convert as converted
from gpucore.claims.share_template import template_object
from gpucore.simulate.templates import without_nulls
from gpucore.units import MemoryUnit, UnitError
from gpucore.wire.errors import WRONG_TYPE, WireError
from gpucore.wire.json_patches import Change
from gpucore.wire.names import Names
from gpuinspect.cluster.snapshots import content
from gpuinspect.commands.options.reading import Domain, fail, note

Document = dict[str, Any]
_AMOUNTS: Final = ("limits", "requests")


class _Plain(yaml.SafeDumper):
    """Writes equal parts of a manifest twice, in place of anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's
        """Never use one."""
        return True


def convert(
    *,
    filename: Annotated[
        Path,
        typer.Option("-f", "--filename", help="manifest; - is standard input", metavar="FILE"),
    ],
    unit: Annotated[
        str, typer.Option(help="size of a unit of GPU memory in the manifest: GiB, MiB or 256MiB")
    ] = "GiB",
    device_class: Annotated[
        str, typer.Option(help="DeviceClass of shares", metavar="NAME")
    ] = "gpushare",
    resource_domain: Domain = "aliyun.com",
) -> None:
    """Print a manifest with ResourceClaims in place of shares, and the templates that it needs.

    The webhook does the same in namespaces with the label gpushare/api=claims.
    """
    try:
        how = ClaimRequests(Names(resource_domain), MemoryUnit.parse(unit), device_class)
    except UnitError as error:
        raise typer.BadParameter(str(error)) from error
    found = _read(filename, how)
    sys.stdout.write(yaml.dump_all(found.documents, Dumper=_Plain, sort_keys=False))
    for obstacle in found.obstacles:
        note(f"note: not converted: {obstacle}")
    if not found.converted:
        fail(f"{filename} contains no pod whose share can be converted")


class ConvertedManifest(msgspec.Struct, frozen=True):
    """The converted objects of a file.

    Attributes:
        documents: templates first, each once, then the objects of the file.
        converted: number of pods and pod templates that request claims now.
        obstacles: why others that request shares do not, by name.
    """

    documents: tuple[Document, ...]
    converted: int
    obstacles: tuple[str, ...]


def convert_manifest(documents: Iterable[Any], how: ClaimRequests) -> ConvertedManifest:
    """Convert the pods of decoded YAML documents, and those of workloads.

    Raises:
        WireError: an object is not what its kind requires.
    """
    templates: dict[tuple[str, str], Document] = {}
    found: list[Document] = []
    obstacles: list[str] = []
    count = 0
    for document in map(deepcopy, _flat(documents)):
        for pod in _checked(document):
            template, obstacle = _convert(pod, document, how)
            count += template is not None
            if template is not None:
                metadata = template["metadata"]
                templates[metadata.get("namespace", ""), metadata["name"]] = template
            if obstacle:
                obstacles.append(f"{document.get('kind')} {_name(document)}: {obstacle}")
        found.append(document)
    return ConvertedManifest((*templates.values(), *found), count, tuple(obstacles))


def _flat(documents: Iterable[Any]) -> Iterator[Document]:
    for each in documents:
        if isinstance(each, dict) and each.get("kind") == "List":
            items = each.get("items") or ()
            if not isinstance(items, list | tuple):
                raise WireError(f"List: {WRONG_TYPE}")
            yield from _flat(items)
        elif isinstance(each, dict):
            yield each
        elif each is not None:
            raise WireError("a document is no Kubernetes object")


def _checked(document: Document) -> Iterator[Document]:
    """The pods of an object whose metadata is a mapping."""
    try:
        _name(document)
        yield from _pods(document)
    except (TypeError, AttributeError) as error:
        raise WireError(f"{document.get('kind') or 'an object'}: {WRONG_TYPE}") from error


def _pods(document: Document) -> Iterator[Document]:
    """The pod, or the pod templates of any kind, as parts of the document that may be changed."""
    if document.get("kind") == "Pod":
        yield document
    else:
        yield from _templates(document.get("spec"))


def _templates(value: Any) -> Iterator[Document]:
    """As :mod:`gpucore.simulate.templates` finds them: mappings whose ``spec`` has containers."""
    if isinstance(value, list):
        for each in value:
            yield from _templates(each)
    elif isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield value
        else:
            yield from _templates(list(value.values()))


def _convert(pod: Document, document: Document, how: ClaimRequests) -> tuple[Document | None, str]:
    """The template that the pod needs, and why it is not converted."""
    try:
        _with_texts(pod)
        found = converted(msgspec.json.encode({"metadata": {}, **without_nulls(pod)}), how)
    except (TypeError, AttributeError, KeyError) as error:
        raise WireError(f"{document.get('kind')} {_name(document)}: {WRONG_TYPE}") from error
    except ValueError as error:
        raise WireError(f"{document.get('kind')} {_name(document)}: {error}") from error
    if found.template is None:
        return None, found.obstacle
    for change in found.changes:
        _apply(pod, change)
    namespace = str((document.get("metadata") or {}).get("namespace") or "")
    return template_object(found.template, namespace, how.device_class), ""


def _with_texts(pod: Document) -> None:
    """YAML reads ``gpu-mem: 2`` as a number; the API server makes it the text that it means."""
    spec = pod.get("spec") or {}
    for box in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for kind in _AMOUNTS:
            amounts = (box.get("resources") or {}).get(kind) or {}
            texts = {key: str(value) for key, value in amounts.items() if value is not None}
            amounts.update(texts)


def _apply(pod: Document, change: Change) -> None:
    *way, last = [part.replace("~1", "/") for part in str(change["path"]).split("/")[1:]]
    at: Any = pod
    for part in way:
        if isinstance(at, dict) and at.get(part) is None:
            at[part] = {}
        at = at[int(part)] if isinstance(at, list) else at[part]
    if change["op"] == "remove":
        del at[last]
    elif last == "-":
        at.append(change["value"])
    else:
        at[last] = change["value"]


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "without a name")


def _read(path: Path, how: ClaimRequests) -> ConvertedManifest:
    try:
        text = content(path).decode()
        return convert_manifest(yaml.safe_load_all(text), how)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")
    except (yaml.YAMLError, WireError, UnicodeDecodeError, RecursionError) as error:
        fail(f"{path} is not a manifest: {error}")
