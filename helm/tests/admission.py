"""Admission rules of the chart, evaluated for a request as the API server does.

The expressions are evaluated by a CEL implementation of its own, over plain objects; the API
server's type checker is not part of it.
"""

from functools import cached_property
from typing import Any

import celpy
from charting import NAMESPACE, Object, Rendered

TENANT = "jane"
SELF = f"system:serviceaccount:{NAMESPACE}:gpushare-device-plugin"
IDX = {"ALIYUN_COM_GPU_MEM_IDX": "1"}


class Conditions:
    """Whether the API server sends a pod to the webhook, by its match conditions."""

    def __init__(self, rendered: Rendered) -> None:
        (hook,) = rendered.of("MutatingWebhookConfiguration")[0]["webhooks"]
        environment = celpy.Environment()
        self._programs = [
            environment.program(environment.compile(each["expression"]))
            for each in hook["matchConditions"]
        ]

    def __call__(self, pod: Object) -> bool:
        """All conditions hold for the creation of this pod."""
        known = {"object": celpy.json_to_cel(pod)}
        return all(bool(program.evaluate(known)) for program in self._programs)


class Policy:
    """One ValidatingAdmissionPolicy."""

    def __init__(self, rendered: Rendered, name: str) -> None:
        self._spec: Object = rendered.one("ValidatingAdmissionPolicy", name)["spec"]

    def refuses(self, request: Object, before: Object | None, after: Object) -> str:
        """The message of the first rule that is broken; empty where the request may pass."""
        known = {"request": request, "oldObject": before or {}, "object": after}
        values = {name: celpy.json_to_cel(value) for name, value in known.items()}
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

    @property
    def _conditions(self) -> list[Object]:
        return list(self._spec.get("matchConditions", ()))

    @cached_property
    def _environment(self) -> celpy.Environment:
        return celpy.Environment()

    def _ask(self, expression: str, values: dict[str, Any]) -> Any:
        program = self._environment.program(self._environment.compile(expression))
        return program.evaluate(values)


def request(user: str, *, node: str = "", resource: str = "pods", verb: str = "UPDATE") -> Object:
    """The user, the verb and the object."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    info = {"username": user, "extra": extra}
    return {"operation": verb, "resource": {"resource": resource}, "userInfo": info}


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
