"""Objects held to the schemas of Kubernetes, each file of which is read once.

The library reads all definitions of a version, a megabyte, for every object that it looks at.
"""

import functools

import kubernetes_validate
from charting import Object
from kubernetes_validate import utils

utils.schema_contents = functools.cache(utils.schema_contents)  # what it returns is only read

NEWEST = kubernetes_validate.latest_version().rpartition(".")[0]
"""The newest version whose schemas are at hand."""


def validate(item: Object, version: str) -> None:
    """Compare an object with its schema in a cluster of this version (``1.34``).

    Raises:
        kubernetes_validate.ValidationError: a field is unknown, missing or of the wrong type.
    """
    kubernetes_validate.validate(item, version, strict=True)
