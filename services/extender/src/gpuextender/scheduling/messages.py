"""Messages between the scheduler and an extender (``k8s.io/kube-scheduler/extender/v1``).

The Go structs have no JSON tags: keys are PascalCase, and Go reads them in any case. So requests
are read in any case here too, exact case first because that is what a scheduler sends and what
costs nothing. Pods and nodes inside are ordinary API objects, left undecoded as long as can be.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.sentences import sentence
from gpucore.model import Code, FitError, PodRequest
from gpucore.scheduling.fit import fit
from gpucore.units import NodeName
from gpucore.wire.errors import decoded

_NULL: Final = b"null"
NOTHING: Final = msgspec.Raw(_NULL)


Names = Annotated[
    msgspec.Raw,
    msgspec.Meta(extra_json_schema={"type": ["array", "null"], "items": {"type": "string"}}),
]
"""Node names or null, undecoded."""


def _nothing() -> msgspec.Raw:
    """A default as a function: a schema cannot show a default of raw bytes."""
    return NOTHING


class MessageError(ValueError):
    """The body is not the message it should be; the text is safe to send back."""


class ExtenderArgs(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Request of filter and prioritize; either ``nodes`` or ``node_names`` is null."""

    pod: msgspec.Raw = msgspec.field(default_factory=_nothing)
    nodes: msgspec.Raw = msgspec.field(default_factory=_nothing)
    node_names: Names = msgspec.field(default_factory=_nothing)


class BindingArgs(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Request of bind."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = msgspec.field(name="PodUID", default="")
    node: str = ""


class PreemptionArgs(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Request of preempt: victims by node, as pods or, with a node cache, as uids."""

    pod: msgspec.Raw = msgspec.field(default_factory=_nothing)
    node_name_to_victims: dict[str, msgspec.Raw] | None = None
    node_name_to_meta_victims: dict[str, msgspec.Raw] | None = None


class Victims(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Victims on one node; each entry of ``pods`` is a pod or ``{"UID": ...}``."""

    pods: list[msgspec.Raw] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class MetaPod(msgspec.Struct, forbid_unknown_fields=True):
    """A victim by identity."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(msgspec.Struct, rename="pascal"):
    """Answer of preempt for one node."""

    pods: list[MetaPod]
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionResult(msgspec.Struct, rename="pascal"):
    """Answer of preempt; a node that is left out is not to be preempted on."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class NodeItems(msgspec.Struct):
    """Full nodes, given back as they came."""

    items: list[msgspec.Raw]


class FilterResult(msgspec.Struct, rename="pascal"):
    """Answer of filter. A node in both failed maps counts as unresolvable where that is known."""

    nodes: NodeItems | None = None
    node_names: Names = msgspec.field(default_factory=_nothing)
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class FailedNode(msgspec.Struct, frozen=True):
    """Why a node cannot take a pod.

    Attributes:
        unresolvable: preemption does not help.
    """

    text: str
    code: Code
    unresolvable: bool = False

    @classmethod
    def of(cls, refusal: FitError) -> "FailedNode":
        """The reason as a scheduler gets it."""
        return cls(sentence(refusal), refusal.code, refusal.unresolvable)

    @classmethod
    def on(cls, node: NodeInfo, pod_request: PodRequest) -> "FailedNode | None":
        """Why this node cannot take a request; ``None`` when it can."""
        refusal = fit(node, pod_request)
        return cls.of(refusal) if refusal else None

    @classmethod
    def unknown(cls, name: NodeName) -> "FailedNode":
        """There is no such node."""
        return cls.of(FitError(name, Code.NODE_UNKNOWN, unresolvable=True))


class FilterStatuses(msgspec.Struct):
    """Reasons by node.

    Attributes:
        failed: every node that cannot take the pod.
        unresolvable: those of them on which preemption does not help.
        counts: number of nodes by code.
    """

    failed: dict[str, str] = msgspec.field(default_factory=dict)
    unresolvable: dict[str, str] = msgspec.field(default_factory=dict)
    counts: Counter[Code] = msgspec.field(default_factory=Counter)

    @classmethod
    def of(cls, errors: Mapping[NodeName, FailedNode]) -> "FilterStatuses":
        """The statuses of nodes with these errors."""
        return cls(
            {node: error.text for node, error in errors.items()},
            {node: error.text for node, error in errors.items() if error.unresolvable},
            Counter(error.code for error in errors.values()),
        )

    def plus(self, errors: Mapping[NodeName, FailedNode]) -> "FilterStatuses":
        """These statuses and those of other nodes."""
        other = FilterStatuses.of(errors)
        return FilterStatuses(
            self.failed | other.failed,
            self.unresolvable | other.unresolvable,
            self.counts + other.counts,
        )


NONE_FILTERED: Final[tuple[Sequence[NodeName], FilterStatuses]] = ((), FilterStatuses())
"""The result for no nodes."""


class HostPriority(msgspec.Struct, rename="pascal", gc=False):
    """Score of one node, 0..10."""

    host: str
    score: int


class BindingResult(msgspec.Struct, rename="pascal"):
    """Answer of bind; empty is success."""

    error: str = ""


class _Named(msgspec.Struct):
    name: NodeName = NodeName("")


class _Node(msgspec.Struct):
    metadata: _Named


M = TypeVar("M", ExtenderArgs, BindingArgs, PreemptionArgs, Victims, MetaPod)

_ENCODER: Final = msgspec.json.Encoder()
_EXACT: Final[Mapping[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (ExtenderArgs, BindingArgs, PreemptionArgs, Victims, MetaPod)
}
_ANY_CASE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NODE: Final = msgspec.json.Decoder(_Node)
_NAMES: Final = msgspec.json.Decoder(list[NodeName])
_BROKEN: Final = (msgspec.MsgspecError, ValueError, RecursionError)

encode: Final = _ENCODER.encode


def decode(body: bytes | msgspec.Raw, kind: type[M]) -> M:
    """Read a message, keys in any case; unknown keys are passed over, ``null`` is an empty one.

    Raises:
        MessageError: the body is no JSON object, or a known key holds another type.
    """
    try:
        message: M = decoded(_EXACT[kind], body, "no message")
    except _BROKEN:
        return _decode_any_case(body, kind)
    return message


def _decode_any_case(body: bytes | msgspec.Raw, kind: type[M]) -> M:
    try:
        if bytes(body).strip() == _NULL:
            return kind()
        given = _any_case(body)
        fields = msgspec.structs.fields(kind)
        return kind(
            **{
                field.name: msgspec.json.decode(given[key], type=field.type)
                for field in fields
                if (key := field.encode_name.lower()) in given
            }
        )
    except _BROKEN as error:
        raise MessageError(f"cannot decode {kind.__name__}: {error}") from error


def _any_case(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of an object by name, in lower case."""
    return {key.lower(): value for key, value in decoded(_ANY_CASE, body, "no object").items()}


def given(raw: msgspec.Raw) -> bool:
    """False for a null or an absent object."""
    return bytes(raw) != _NULL


def names_of(names: msgspec.Raw) -> list[NodeName]:
    """Node names.

    Raises:
        MessageError: it is no list of strings.
    """
    try:
        return _NAMES.decode(names)
    except _BROKEN as error:
        raise MessageError(f"cannot decode NodeNames: {error}") from error


def items_of(nodes: msgspec.Raw) -> dict[NodeName, msgspec.Raw]:
    """Full nodes of a ``v1.NodeList`` by name, undecoded.

    Raises:
        MessageError: it is no list of nodes.
    """
    try:
        listed = _any_case(nodes)
        items = msgspec.json.decode(listed.get("items", NOTHING), type=list[msgspec.Raw] | None)
        return {_NODE.decode(item).metadata.name: item for item in items or ()}
    except _BROKEN as error:
        raise MessageError(f"cannot decode Nodes: {error}") from error


KINDS: Final = (
    ExtenderArgs,
    FilterResult,
    HostPriority,
    BindingArgs,
    BindingResult,
    PreemptionArgs,
    PreemptionResult,
)
"""What the scheduler sends and receives."""
