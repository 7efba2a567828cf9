"""Pod templates anywhere in a Kubernetes object, with the number of pods of each.

No kind is listed: a template is a mapping whose ``spec`` has containers, and the numbers
``replicas`` and ``parallelism`` on the way to it multiply. That covers Deployments, CronJobs,
JobSets, MPIJobs and objects of unknown kinds. A LeaderWorkerSet and the worker groups of Ray have
numbers of their own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

MOST_DEPTH: Final = 12
"""Levels of an object in which templates are looked for."""
MOST_TEMPLATES: Final = 200
_ENDINGS: Final = ("GroupSpec", "Template")
_NAMES: Final = ("groupName", "name")


class PodTemplate(msgspec.Struct, frozen=True):
    """One template of an object.

    Attributes:
        role: such as ``worker``; empty where the object has one template.
    """

    role: str
    replicas: int
    template: Mapping[str, Any]


def without_nulls(value: Any) -> Any:
    """The value as the API server reads it: a key without a value is the same as no key."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def pod_templates(document: Mapping[str, Any]) -> list[PodTemplate]:
    """The templates below ``spec`` of an object, in its order.

    Raises:
        ValueError: too many templates, or a number that is none.
    """
    spec = document.get("spec")
    found: list[PodTemplate] = []
    for each in _below(spec, "", 1, MOST_DEPTH):
        if len(found) == MOST_TEMPLATES:
            raise ValueError(f"has more than {MOST_TEMPLATES} pod templates")
        found.append(each)
    if not found and isinstance(spec, dict) and isinstance(spec.get("template"), dict):
        return [PodTemplate("", _count(spec), spec["template"])]  # without containers
    return [msgspec.structs.replace(found[0], role="")] if len(found) == 1 else found


def _below(value: Any, role: str, count: int, depth: int) -> Iterator[PodTemplate]:
    if depth == 0:
        return
    if isinstance(value, list):
        for each in value:
            yield from _below(each, _named(each) or role, count, depth - 1)
    elif isinstance(value, dict):
        if _is_template(value):
            yield PodTemplate(role, count, value)
            return
        count *= _count(value)
        for key, each in value.items():
            number = count * _group(value, key)
            yield from _below(each, _role(key) or role, number, depth - 1)


def _is_template(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    boxes = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(boxes, list) and all(isinstance(box, dict) for box in boxes)


def _count(value: Mapping[str, Any]) -> int:
    """Pods that run at the same time: a Job has no more of them than completions."""
    hosts = _number(value, "numOfHosts", 1)
    if value.get("replicas") is not None:
        return _number(value, "replicas", 1) * hosts
    parallelism = _number(value, "parallelism", 1)
    return min(parallelism, _number(value, "completions", parallelism)) * hosts


def _number(value: Mapping[str, Any], key: str, default: int) -> int:
    return default if value.get(key) is None else max(int(value[key]), 0)


def _group(value: Mapping[str, Any], key: str) -> int:
    """Pods of a template in one group of a LeaderWorkerSet: ``size`` counts the leader."""
    if key != "workerTemplate" or value.get("size") is None:
        return 1
    return max(int(value["size"]) - ("leaderTemplate" in value), 0)


def _named(value: Any) -> str:
    names = [value.get(key) for key in _NAMES] if isinstance(value, dict) else []
    return next((str(name).lower() for name in names if name), "")


def _role(key: str) -> str:
    """``head`` of ``headGroupSpec``, ``worker`` of the role ``Worker``; empty for other keys."""
    for ending in _ENDINGS:
        if key.endswith(ending) and key != ending:
            return key.removesuffix(ending).lower()
    return key.lower() if key[:1].isupper() else ""
