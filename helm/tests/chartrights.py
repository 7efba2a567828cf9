"""The rights that the roles of a rendered chart give to an account, and requests that use them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from charting import Object, Rendered

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+))?)?"
)
_NAMED = re.compile(r"(?:^|,)metadata\.name=([^,]+)")
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class ChartRight(NamedTuple):
    """One verb on one resource.

    Attributes:
        namespace, name: empty for all.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def allows(self, request: "ChartRight") -> bool:
        """Whether the request of this right, with its namespace and name, is permitted."""
        same = (self.verb, self.group, self.resource)
        return (
            same == (request.verb, request.group, request.resource)
            and self.namespace in {"", request.namespace}
            and self.name in {"", request.name}
        )


def rights_of(rendered: Rendered, account: str) -> list[ChartRight]:
    """The rights of a ServiceAccount of the chart by the chart's own roles."""
    roles = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for kind in ("Role", "ClusterRole")
        for item in rendered.of(kind)
    }
    found: list[ChartRight] = []
    for binding in [*rendered.of("RoleBinding"), *rendered.of("ClusterRoleBinding")]:
        if account not in {each["name"] for each in binding["subjects"]}:
            continue
        namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        inside = namespace if reference["kind"] == "Role" else ""
        role = roles.get((reference["kind"], inside, reference["name"]))
        found += rights_by(role, namespace) if role else ()
    return found


def rights_by(role: Object, namespace: str) -> Iterator[ChartRight]:
    """The rights that a role gives where it is bound: in a namespace, or everywhere if empty."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield ChartRight(verb, group, resource, namespace, name)


def request_right(method: str, target: str) -> ChartRight | None:
    """What the API server authorizes for a request; ``None`` for no resource, such as /version."""
    path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
    match = _PATH.fullmatch(path.partition("/proxy/")[0])
    if match is None:
        return None
    found = {key: value or "" for key, value in match.groupdict().items()}
    verb, name = _VERBS[method], found["name"]
    resource = "/".join(filter(None, (found["resource"], found["part"])))
    if "/proxy/" in path:
        resource = f"{resource}/proxy"
    elif verb == "get" and not name:
        verb = "watch" if "watch" in query else "list"
        named = _NAMED.search(query.get("fieldSelector", [""])[0])
        name = named[1] if named else ""
    return ChartRight(verb, found["group"], resource, found["namespace"], name)


class Authorizer:
    """Permits what an account of the chart may do, and keeps what it did.

    Attributes:
        refused: rights that requests needed and the account lacks.
    """

    def __init__(self, rights: Sequence[ChartRight]) -> None:
        self._rights = tuple(rights)
        self._used: set[ChartRight] = set()
        self.refused: set[ChartRight] = set()

    def permits(self, method: str, target: str) -> bool:
        """Whether the account may make the request."""
        request = request_right(method, target)
        if request is None:
            return True  # every user may read the version
        found = {right for right in self._rights if right.allows(request)}
        self._used |= found
        if not found:
            self.refused.add(request)
        return bool(found)

    def has(self, right: ChartRight) -> bool:
        """Whether the account has the right; that alone is no use of it."""
        return any(each.allows(right) for each in self._rights)

    @property
    def unused(self) -> set[ChartRight]:
        """Rights that no request used."""
        return set(self._rights) - self._used
