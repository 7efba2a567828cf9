"""CEL selectors of DeviceClasses and claims, as far as they are simple comparisons.

Understood are terms that ``&&`` joins: the driver, ``allowMultipleAllocations``, attributes against
a literal or a list of texts, and capacities with ``compareTo(quantity(...))``. Anything else is
named as unknown and never guessed.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from gpucore.model import CORE_PER_GPU
from gpucore.units import MIB_BYTES
from gpucore.wire.claim.devices import (
    COMPUTE,
    MEMORY,
    NUMA_NODE,
    PCIE_ROOT,
    SHARES,
    SliceDevice,
)
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.quantity import exact

Value = str | int
_Test = Callable[[SliceDevice], bool | None]
"""The value of a term; ``None`` where it is an error of CEL, as for a missing attribute."""

_LONGEST: Final = 4096
_KEPT: Final = 1024
_KEPT_LONGEST: Final = 512
"""Characters of an expression whose terms are kept; its author may write any number of others."""
_SHOWN: Final = 200
_TEXT: Final = r"""(?:'[^'\\]*'|"[^"\\]*")"""
_OPERATOR: Final = r"(?P<op>==|!=|>=|<=|>|<)"
_COMPARE: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FIELD: Final = (
    rf"""\[\s*(?P<domain>{_TEXT})\s*\]\s*(?:\.(?P<dot>\w+)|\[\s*(?P<key>{_TEXT})\s*\])"""
)
_DRIVER: Final = re.compile(rf"device\.driver\s*(?P<op>==|!=)\s*(?P<value>{_TEXT})")
_SHARED: Final = re.compile(
    r"(?P<no>!)?device\.allowMultipleAllocations(?:\s*==\s*(?P<value>true|false))?"
)
_ATTRIBUTE: Final = re.compile(
    rf"device\.attributes{_FIELD}\s*{_OPERATOR}\s*(?P<value>{_TEXT}|-?\d{{1,18}})"
)
_MEMBER: Final = re.compile(
    rf"device\.attributes{_FIELD}\s*\bin\s*\[\s*(?P<values>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\]"
)
_CAPACITY: Final = re.compile(
    rf"device\.capacity{_FIELD}\s*\.compareTo\(\s*quantity\(\s*(?P<value>{_TEXT})\s*\)\s*\)"
    rf"\s*{_OPERATOR}\s*0"
)
_PART: Final = re.compile(rf"({_TEXT})|(&&)")


class Selection(msgspec.Struct, frozen=True):
    """The result of the selectors for one device.

    Attributes:
        matches: no selector that is understood excludes it.
        failed: the term that excludes it; empty for none.
        error: the term is an error for this device: kube-scheduler ends the attempt for the pod.
    """

    matches: bool = True
    failed: str = ""
    error: bool = False


_MATCHES: Final = Selection()


def select(device: SliceDevice, expressions: Iterable[str]) -> Selection:
    """Apply the selectors; what is not understood is taken to match."""
    for expression in expressions:
        failed, unknown = "", False
        for text, test in _terms(expression):
            value = True if test is None else test(device)
            if value is False:  # in CEL false && error is false
                return Selection(matches=False, failed=text)
            if value is None:
                failed = failed or text
            unknown = unknown or test is None
        if failed:
            return Selection(matches=False, failed=failed, error=not unknown)
    return _MATCHES


def unknown_terms(expressions: Iterable[str]) -> tuple[str, ...]:
    """The terms that are not understood, in order and once each."""
    texts = (text for each in expressions for text, test in _terms(each) if test is None)
    return tuple(dict.fromkeys(texts))


def excludes_driver(driver: str, expressions: Iterable[str]) -> bool:
    """The selectors exclude every device of this driver."""
    for expression in expressions:
        for text in _split(expression[:_LONGEST]) if "||" not in expression else ():
            found = _DRIVER.fullmatch(text)
            if found and not _COMPARE[found["op"]](driver, found["value"][1:-1]):
                return True
    return False


def attributes_of(device: SliceDevice) -> Mapping[str, Value]:
    """The attributes of a device, by fully qualified name."""
    texts = {
        "uuid": device.uuid,
        "productName": device.product,
        "isolation": device.isolation,
        "linkGroup": device.link_group,
    }
    numbers = {"index": device.index, "numaNode": device.numa}
    found: dict[str, Value] = {f"{CLAIM_DRIVER}/{key}": text for key, text in texts.items() if text}
    found |= {f"{CLAIM_DRIVER}/{key}": value for key, value in numbers.items() if value >= 0}
    standard: dict[str, Value] = {PCIE_ROOT: device.pcie_root} if device.pcie_root else {}
    return found | standard | ({NUMA_NODE: device.numa} if device.numa >= 0 else {})


def _terms(expression: str) -> tuple[tuple[str, _Test | None], ...]:
    return (_kept if len(expression) <= _KEPT_LONGEST else _read)(expression)


@lru_cache(_KEPT)
def _kept(expression: str) -> tuple[tuple[str, _Test | None], ...]:
    """The same object for equal expressions: a cluster has few, and reads them for each node."""
    return _read(expression)


def _read(expression: str) -> tuple[tuple[str, _Test | None], ...]:
    if len(expression) > _LONGEST or "||" in expression or "?" in expression:
        return ((_shown(expression), None),)
    return tuple((_shown(text), _test(text)) for text in _split(expression))


def _shown(text: str) -> str:
    """A term for people: its author may have written anything, and much of it."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}..."


def _split(expression: str) -> list[str]:
    """The terms between ``&&``; none is split inside quotes or parentheses."""
    texts, start = [], 0
    for found in _PART.finditer(expression):
        inside = expression[start : found.start()]
        if found[2] and inside.count("(") == inside.count(")"):
            texts.append(inside)
            start = found.end()
    return [" ".join(text.split()) for text in (*texts, expression[start:])]


def _test(text: str) -> _Test | None:
    if text == "true":
        return lambda _device: True
    if found := _DRIVER.fullmatch(text):
        same = bool(_COMPARE[found["op"]](CLAIM_DRIVER, found["value"][1:-1]))
        return lambda _device: same
    if found := _SHARED.fullmatch(text):
        wanted = (found["value"] != "false") != bool(found["no"])
        return lambda device: device.shared is wanted
    for pattern, read in ((_ATTRIBUTE, _attribute), (_MEMBER, _member), (_CAPACITY, _capacity)):
        if found := pattern.fullmatch(text):
            return read(found)
    return None


def _attribute(found: re.Match[str]) -> _Test:
    compare, raw = _COMPARE[found["op"]], found["value"]
    value: Value = raw[1:-1] if raw[0] in "'\"" else int(raw)
    name = _full_name(found)

    def test(device: SliceDevice) -> bool | None:
        """Values of two types are not equal, and have no order."""
        has = attributes_of(device).get(name)
        if has is None:
            return None
        if isinstance(has, type(value)):
            return bool(compare(has, value))
        return found["op"] == "!=" if found["op"] in {"==", "!="} else None

    return test


def _member(found: re.Match[str]) -> _Test:
    values = {each[1:-1] for each in re.findall(_TEXT, found["values"])}
    name = _full_name(found)

    def test(device: SliceDevice) -> bool | None:
        has = attributes_of(device).get(name)
        return None if has is None else has in values

    return test


def _capacity(found: re.Match[str]) -> _Test | None:
    compare, domain, name = _COMPARE[found["op"]], found["domain"][1:-1], _name(found)
    try:
        wanted, denominator = exact(found["value"][1:-1])
    except WireError:
        return None

    def test(device: SliceDevice) -> bool | None:
        amounts = {MEMORY: device.memory_mib * MIB_BYTES, COMPUTE: CORE_PER_GPU}
        amounts |= {SHARES: device.max_shares} if device.shared and device.max_shares else {}
        if domain != CLAIM_DRIVER or name not in amounts:
            return None
        return bool(compare(amounts[name] * denominator, wanted))

    return test


def _full_name(found: re.Match[str]) -> str:
    return f"{found['domain'][1:-1]}/{_name(found)}"


def _name(found: re.Match[str]) -> str:
    return found["dot"] or found["key"][1:-1]
