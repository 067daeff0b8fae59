"""Every error a caller can meet, as one tree.

    HPlusError
    ├── InputError          a text, a list of texts or an option is not what was expected
    │   ├── BudgetError     a budget or width that cannot be served
    │   ├── FilterError     a metadata filter that cannot be read; the message shows where
    │   └── MissingDocumentError  the index has no document of this id; also a KeyError
    ├── CheckpointError     a checkpoint folder is damaged, incomplete or of another version
    ├── BackboneError       the encoder's files are missing, changed or not understood
    ├── TermsError          a terminology file cannot be read
    ├── TeacherError        a language model's endpoint cannot be used; its answers so far are kept
    ├── ModelMismatchError  an index was made by another model than the one at hand
    ├── StorageError        a disk or database failed; what was confirmed before is safe
    │   └── IndexBusyError  another process is writing to the index
    ├── ServiceError        a service cannot be reached, or refuses a client
    ├── IndexDamagedError   files of an index are missing, cut short or changed
    └── MissingExtraError   an optional package is needed; the message names the extra

Messages say what was expected, what was found, where, and what to do. They quote texts and names
that come from anywhere, so nothing in them commands a terminal.
"""

from hplus.terminal import visible


class UnknownTokensWarning(UserWarning):
    """Much of a text is unknown to the model's tokenizer, and finds nothing."""


class HPlusError(Exception):
    """The root: `except HPlusError` catches everything this library raises on purpose."""

    def __str__(self) -> str:
        return visible(super().__str__())


class InputError(HPlusError, ValueError):
    """A text, a list of texts or an option is not what was expected."""


class BudgetError(InputError):
    """A budget or width that cannot be served."""


class FilterError(InputError):
    """A metadata filter that cannot be read; the message shows where.

    at: the character of the filter that the caret points to, if there is one.
    """

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at


class MissingDocumentError(InputError, KeyError):
    """The index has no document of this id."""

    def __str__(self) -> str:
        return visible(Exception.__str__(self))  # KeyError would quote the sentence


class CheckpointError(HPlusError):
    """A checkpoint folder is damaged, incomplete or of another version."""


class BackboneError(HPlusError):
    """The encoder's files are missing, changed or not understood."""


class TermsError(HPlusError):
    """A terminology file cannot be read."""


class TeacherError(HPlusError):
    """A language model's endpoint cannot be used; its answers so far are kept."""


class MissingExtraError(HPlusError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class ModelMismatchError(HPlusError):
    """An index was made by another model than the one at hand."""


class StorageError(HPlusError):
    """A disk or database failed; what was confirmed before is safe."""


class IndexBusyError(StorageError):
    """Another process is writing to the index."""


class ServiceError(HPlusError):
    """A service cannot be reached, or refuses a client."""


class IndexDamagedError(HPlusError):
    """Files of an index are missing, cut short or changed."""
