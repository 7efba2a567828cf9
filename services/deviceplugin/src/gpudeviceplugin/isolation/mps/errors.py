"""Errors of an MPS control daemon; events contain their messages."""


class MpsError(Exception):
    """A daemon does not do what it should."""


class ControlError(MpsError):
    """The MPS control daemon did not answer a command."""


class FolderError(MpsError):
    """The directories of the MPS daemon cannot be used."""
