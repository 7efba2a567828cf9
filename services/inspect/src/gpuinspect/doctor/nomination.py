"""Checks of nominated nodes: the scheduler's version, the right to write them, and its limit."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.collect import ListRequest
from gpuinspect.cluster.rawpods import NamedReference, RawPodSpec, spec_of
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called
from gpuinspect.doctor.rawobjects import NamedObject

check = Checklist()
OLDEST: Final = (1, 22)
"""The first kube-scheduler that evaluates the nominated node before all others."""
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
WANTED: Final = (
    ListRequest("ClusterRole", f"{_RBAC}/clusterroles"),
    ListRequest("ClusterRoleBinding", f"{_RBAC}/clusterrolebindings"),
    ListRequest("ValidatingAdmissionPolicy", f"{_ADMISSION}/validatingadmissionpolicies"),
    ListRequest(
        "ValidatingAdmissionPolicyBinding", f"{_ADMISSION}/validatingadmissionpolicybindings"
    ),
)
_VERSION: Final = re.compile(r"/kube-scheduler:v?(\d+)\.(\d+)")
_FIELD: Final = b"nominatedNodeName"
_OF_SHARES: Final = b"requestsShares"


class _Rule(msgspec.Struct, rename="camel"):
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    verbs: list[str] | None = None

    def allows_nomination(self) -> bool:
        """Whether it gives the right to patch pods/status."""
        return (
            bool({"", "*"}.intersection(self.api_groups or ()))
            and bool({"pods/status", "*", "*/status"}.intersection(self.resources or ()))
            and bool({"patch", "*"}.intersection(self.verbs or ()))
        )


class _Role(msgspec.Struct):
    rules: list[_Rule] | None = None


class _Subject(msgspec.Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _RoleBinding(msgspec.Struct, rename="camel"):
    role_ref: NamedReference
    subjects: list[_Subject] | None = None


class _PolicyBindingSpec(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    validation_actions: list[str] | None = None


class _PolicyBinding(msgspec.Struct):
    spec: _PolicyBindingSpec


def _nominating(evidence: Evidence) -> Iterator[tuple[Pod, RawPodSpec]]:
    """Extenders that are started with nominations, and their specification."""
    for pod in evidence.extenders:
        spec = spec_of(evidence.raw(pod))
        flags = [word for box in spec.containers or () for word in box.args or ()]
        chosen = [word for word in flags if word.startswith("--nominate=")]
        if chosen and chosen[-1] != "--nominate=off":
            yield pod, spec


@check(
    "nomination-supported",
    Level.WARN,
    "kube-scheduler evaluates nominated nodes first",
    do="set extender.nominate to off, or scheduler.image.tag to Kubernetes 1.22 or later",
)
def _supported(evidence: Evidence) -> Iterator[str]:
    for pod, spec in _nominating(evidence):
        for box in spec.containers or ():
            found = _VERSION.search(box.image)
            if found and (int(found[1]), int(found[2])) < OLDEST:
                yield f"{called(pod)} nominates nodes, and {box.image} is older than 1.22"


@check(
    "nomination-allowed",
    Level.WARN,
    "the extender may write nominated nodes",
    do="run helm upgrade, which grants patch on pods/status, or set extender.nominate to off",
    needs=("ClusterRole", "ClusterRoleBinding"),
)
def _allowed(evidence: Evidence) -> Iterator[str]:
    roles = dict(_roles(evidence))
    for pod, spec in _nominating(evidence):
        account = _Subject("ServiceAccount", spec.service_account_name, pod.namespace)
        granted = _bound(evidence, account)
        rules = [rule for name in granted for rule in roles.get(name, _Role()).rules or ()]
        if not any(rule.allows_nomination() for rule in rules):
            yield f"account {spec.service_account_name} of {called(pod)} must not patch pods/status"


def _roles(evidence: Evidence) -> Iterator[tuple[str, _Role]]:
    for raw in evidence.snapshot.all("ClusterRole"):
        name = msgspec.json.decode(raw, type=NamedObject).metadata.name
        yield name, msgspec.json.decode(raw, type=_Role)


def _bound(evidence: Evidence, account: _Subject) -> Iterator[str]:
    """Names of the cluster roles of an account."""
    for raw in evidence.snapshot.all("ClusterRoleBinding"):
        binding = msgspec.json.decode(raw, type=_RoleBinding)
        if account in (binding.subjects or ()):
            yield binding.role_ref.name


@check(
    "nomination-limited",
    Level.WARN,
    "an admission policy limits what the extender writes to the status of pods",
    do="set admissionPolicy.enabled and admissionPolicy.action=Deny, and run helm upgrade",
    needs=("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
)
def _limited(evidence: Evidence) -> Iterator[str]:
    policies = dict(_policies(evidence))
    for pod, spec in _nominating(evidence):
        account = f"system:serviceaccount:{pod.namespace}:{spec.service_account_name}'"
        mine = [raw for raw in policies.values() if account.encode() in raw and _FIELD in raw]
        alone = not any(_VERSION.search(box.image) for box in spec.containers or ())
        if not mine:
            yield f"no admission policy in force limits account {spec.service_account_name}"
        elif alone and not any(_OF_SHARES in raw for raw in mine):
            yield (
                f"the admission policy of account {spec.service_account_name} is not limited to"
                " pods that request GPU shares"
            )


def _policies(evidence: Evidence) -> Iterator[tuple[str, bytes]]:
    """Policies in force by name."""
    enforced: Mapping[str, bool] = {
        spec.policy_name: "Deny" in (spec.validation_actions or ())
        for raw in evidence.snapshot.all("ValidatingAdmissionPolicyBinding")
        for spec in (msgspec.json.decode(raw, type=_PolicyBinding).spec,)
    }
    for raw in evidence.snapshot.all("ValidatingAdmissionPolicy"):
        name = msgspec.json.decode(raw, type=NamedObject).metadata.name
        if enforced.get(name):
            yield name, bytes(raw)
