"""Admission rules of the chart, evaluated for a request as the API server does.

The expressions are evaluated by a CEL implementation of its own, over plain objects; the API
server's type checker is not part of it.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import celpy
from charting import NAMESPACE, Object, Rendered

TENANT = "jane"
SELF = f"system:serviceaccount:{NAMESPACE}:gpushare-device-plugin"
IDX = {"ALIYUN_COM_GPU_MEM_IDX": "1"}


def _step(name: str) -> Callable[..., Any]:
    """One call of the authorizer's chain, which is kept as text."""
    return lambda before, value: celpy.celtypes.StringType(f"{before}{name}={value} ")


_STEPS = {
    name: _step(name) for name in ("group", "resource", "subresource", "namespace", "name", "check")
}


def _contains(item: Any, container: Any) -> Any:
    """CEL's `in`, which takes no loop over a map; that of the implementation does."""
    return celpy.celtypes.BoolType(item in container)


def right(verb: str, resource: str, *, subresource: str, name: str, namespace: str = "team") -> str:
    """A right of the core group, in the order in which the policies ask for it."""
    steps = {"group": "", "resource": resource, "subresource": subresource}
    steps |= {"namespace": namespace, "name": name, "check": verb}
    return "".join(f"{step}={value} " for step, value in steps.items())


def _sum(numbers: Any) -> Any:
    """What Kubernetes adds to CEL for lists of numbers."""
    return celpy.celtypes.IntType(sum(numbers))


class _CountingMap(celpy.celtypes.MapType):
    """A map that records the entries that a macro takes from it; comparing two maps takes none."""

    seen: list[Any]

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.seen.append(key)
            yield key


class _CountingList(celpy.celtypes.ListType):
    """The same of a list."""

    seen: list[Any]

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.seen.append(item)
            yield item


def _counting(value: Any, seen: list[Any]) -> Any:
    """The value for an expression; loops over its maps and lists are recorded."""
    made: Any
    if isinstance(value, dict):
        made = _CountingMap(
            [(celpy.json_to_cel(key), _counting(each, seen)) for key, each in value.items()]
        )
    elif isinstance(value, list):
        made = _CountingList([_counting(each, seen) for each in value])
    else:
        return celpy.json_to_cel(value)
    made.seen = seen
    return made


class Conditions:
    """Whether the API server sends a pod to the webhook, by its match conditions."""

    def __init__(self, rendered: Rendered) -> None:
        (hook,) = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
        environment = celpy.Environment()
        self._programs = [
            environment.program(environment.compile(each["expression"]), {"sum": _sum})
            for each in hook["matchConditions"]
        ]

    def __call__(self, pod: Object) -> bool:
        """All conditions hold for the creation of this pod."""
        known = {"object": celpy.json_to_cel(pod)}
        return all(bool(program.evaluate(known)) for program in self._programs)


class Policy:
    """One ValidatingAdmissionPolicy.

    Args:
        rights: of the user, as :func:`right` writes them.
    """

    def __init__(self, rendered: Rendered, name: str, *rights: str) -> None:
        self._rights = frozenset(rights)
        self._spec: Object = rendered.one("ValidatingAdmissionPolicy", name)["spec"]

    def refuses(
        self, request: Object, before: Object | None, after: Object, params: Object | None = None
    ) -> str:
        """The message of the first rule that is broken; empty where the request may pass.

        Args:
            params: the object that the binding selects, where the policy has parameters.
        """
        return self._judged(request, before, after, celpy.json_to_cel, params)

    def counted(self, request: Object, before: Object | None, after: Object) -> tuple[str, int]:
        """That message, and how many entries of the objects the expressions looped over."""
        seen: list[Any] = []
        answer = self._judged(request, before, after, lambda value: _counting(value, seen))
        return answer, len(seen)

    def _judged(
        self,
        request: Object,
        before: Object | None,
        after: Object,
        converted: Callable[..., Any],
        params: Object | None = None,
    ) -> str:
        known = {"request": request, "oldObject": before or {}, "object": after, "authorizer": ""}
        known |= {"params": params} if params is not None else {}
        values = {name: converted(value) for name, value in known.items()}
        if not any(map(self._selected, (before, after))):
            return ""
        if not all(self._ask(each["expression"], values) for each in self._conditions):
            return ""
        made = celpy.celtypes.MapType()
        for variable in self._spec.get("variables", ()):
            found = self._ask(variable["expression"], {**values, "variables": made})
            made[celpy.celtypes.StringType(variable["name"])] = found
        for rule in self._spec["validations"]:
            if not self._ask(rule["expression"], {**values, "variables": made}):
                return str(rule["message"])
        return ""

    def _selected(self, item: Object | None) -> bool:
        """The labels of the old or the new object are those that the policy is about."""
        selector = self._spec["matchConstraints"].get("objectSelector", {})
        labels = item["metadata"].get("labels", {}) if item else {}
        return bool(selector.get("matchLabels", {}).items() <= labels.items())

    def _allowed(self, check: str) -> Any:
        return celpy.celtypes.BoolType(check in self._rights)

    @property
    def _conditions(self) -> list[Object]:
        return list(self._spec.get("matchConditions", ()))

    def _ask(self, expression: str, values: dict[str, Any]) -> Any:
        steps = {**_STEPS, "allowed": self._allowed, "_in_": _contains, "sum": _sum}
        return _environment().program(_compiled(expression), steps).evaluate(values)


@cache
def _environment() -> celpy.Environment:
    return celpy.Environment()


@cache
def _compiled(expression: str) -> Any:
    return _environment().compile(expression)


def request(user: str, *, node: str = "", resource: str = "pods", verb: str = "UPDATE") -> Object:
    """The user, the verb and the object."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    info = {"username": user, "extra": extra}
    made = {"operation": verb, "resource": {"resource": resource}, "userInfo": info}
    return {**made, "namespace": "team", "name": "p"}


def pod(node: str = "n1", image: str = "a", **annotations: str) -> Object:
    """A pod with annotations."""
    spec = {"nodeName": node, "containers": [{"name": "c", "image": image}]}
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


def labelled(item: Object, key: str, value: str = "1") -> Object:
    """The object with this label."""
    return item | {"metadata": item["metadata"] | {"labels": {key: value}}}


def held_by(item: Object, **metadata: object) -> Object:
    """The object with these fields of its metadata."""
    return item | {"metadata": item["metadata"] | metadata}
