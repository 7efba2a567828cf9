"""Errors of an MPS control daemon; events contain their messages."""


class MpsError(Exception):
    """A daemon does not do what it should."""


class ControlError(MpsError):
    """It did not answer a command."""


class FolderError(MpsError):
    """Its directories cannot be used."""
