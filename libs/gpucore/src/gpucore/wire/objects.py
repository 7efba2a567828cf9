"""Parts that objects of several kinds have in common, as the API server writes them."""

import msgspec


class ObjectMetadata(msgspec.Struct, rename="camel", gc=False):
    """The identity and the version of an object."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class Condition(msgspec.Struct, gc=False):
    """One condition of a status."""

    type: str = ""
    status: str = ""
