"""Types of fields that objects of several kinds have."""

from typing import Annotated

import msgspec

Quantity = Annotated[str, msgspec.Meta(pattern=r"^[-+.0-9eEinumkKMGTP]+\Z")]
Texts = dict[str, str]
Amounts = dict[str, str | int | float]
"""Quantities by resource name, as found; a file made by hand may write numbers."""
