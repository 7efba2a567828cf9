"""The JSON and YAML of ``gpushare doctor``; versioned as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Sequence

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.doctor.checks import CheckStatus, Result


class CheckDoc(msgspec.Struct, frozen=True):
    """One check; ``result`` is ok, warn, fail or skip, ``findings`` lists the details."""

    name: str
    title: str
    result: str
    findings: list[str]
    remedy: str


class Examination(Document, frozen=True):
    """The answer of ``gpushare doctor -o json``."""

    healthy: bool
    items: list[CheckDoc]


def examination_doc(results: Sequence[Result]) -> Examination:
    """The document of all checks."""
    healthy = all(result.verdict is not CheckStatus.FAIL for result in results)
    return Examination(API_VERSION, "Examination", healthy, [_check(each) for each in results])


def _check(result: Result) -> CheckDoc:
    check = result.check
    return CheckDoc(
        name=check.name,
        title=check.title,
        result=result.verdict.value,
        findings=list(result.findings),
        remedy=check.remedy,
    )
