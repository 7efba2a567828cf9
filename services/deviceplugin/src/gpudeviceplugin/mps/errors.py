"""What can go wrong with an MPS control daemon; the message is the sentence that events carry."""


class MpsError(Exception):
    """A daemon does not do what it should."""


class ControlError(MpsError):
    """It did not answer a command."""


class FolderError(MpsError):
    """Its directories cannot be used."""
