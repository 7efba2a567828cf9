"""Errors of an MPS control daemon; events contain their messages."""


class MpsError(Exception):
    """A daemon does not do what it should."""


class ControlError(MpsError):
    """The MPS control daemon did not answer a command."""


class NoDaemonError(ControlError):
    """No MPS control daemon uses the directory."""


class BusyError(ControlError):
    """The MPS control daemon runs, and reads the commands of another client."""


class ProgramError(ControlError):
    """The control program did not run, which shows nothing about the MPS control daemon."""


class FolderError(MpsError):
    """The directories of the MPS daemon cannot be used."""
