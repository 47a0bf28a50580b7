"""What a weight store refuses, as exceptions: one class per error code of the management RFC."""

from __future__ import annotations

__all__ = [
    "WeightBusyError",
    "WeightCancelledError",
    "WeightConflictError",
    "WeightCorruptError",
    "WeightDurabilityError",
    "WeightExhaustedError",
    "WeightInternalError",
    "WeightInvalidArgumentError",
    "WeightLeaseExpiredError",
    "WeightNotFoundError",
    "WeightNotReadyError",
    "WeightOutcomeUnknownError",
    "WeightPermissionDeniedError",
    "WeightPolicyUnsatisfiableError",
    "WeightStaleGenerationError",
    "WeightStoreError",
    "WeightUnavailableError",
    "WeightUnsupportedError",
    "error_for",
]


class WeightStoreError(Exception):
    """A store operation failed; `code` is the RFC's name of the reason.

    The message carries the values that disagree. Subclasses name the codes, so that callers can
    catch just what they handle.
    """

    code = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self):
        return type(self), (self.message,)


class WeightInvalidArgumentError(WeightStoreError, ValueError):
    """The request cannot mean anything: a field and both values are named; nothing was changed."""

    code = "INVALID_ARGUMENT"


class WeightNotFoundError(WeightStoreError, LookupError):
    """No such revision, or not visible to this tenant."""

    code = "NOT_FOUND"


class WeightNotReadyError(WeightStoreError):
    """The revision exists and cannot be read now (IMPORTING, DEGRADED or DELETING)."""

    code = "NOT_READY"


class WeightConflictError(WeightStoreError):
    """The identity is taken by different content, or a competing request won."""

    code = "CONFLICT"


class WeightStaleGenerationError(WeightStoreError):
    """The generation is at or below what the lineage has committed, or the caller's view is old."""

    code = "STALE_GENERATION"


class WeightBusyError(WeightStoreError):
    """An active lease or operation stands in the way; try again later."""

    code = "BUSY"


class WeightLeaseExpiredError(WeightStoreError):
    """The read lease ended before the data was handed over: the targets are invalid."""

    code = "LEASE_EXPIRED"


class WeightDurabilityError(WeightStoreError):
    """The change could not be made durable; a retry of the same command gets its first outcome."""

    code = "DURABILITY_FAILED"


class WeightPolicyUnsatisfiableError(WeightStoreError):
    """The store has no tier that could satisfy the explicit policy."""

    code = "POLICY_UNSATISFIABLE"


class WeightUnavailableError(WeightStoreError):
    """A Master or node cannot be reached now."""

    code = "UNAVAILABLE"


class WeightExhaustedError(WeightStoreError):
    """No room: the message has the bytes needed and free. Nothing was changed."""

    code = "EXHAUSTED"


class WeightCorruptError(WeightStoreError):
    """Bytes or metadata do not match their digest, or the digest is missing."""

    code = "CORRUPT"


class WeightUnsupportedError(WeightStoreError):
    """The store cannot do this, and says so rather than doing something else."""

    code = "UNSUPPORTED"


class WeightCancelledError(WeightStoreError):
    """The caller cancelled; targets that got only part of their bytes are invalid."""

    code = "CANCELLED"


class WeightOutcomeUnknownError(WeightStoreError):
    """The change may or may not have happened; a retry is safe and tells which."""

    code = "OUTCOME_UNKNOWN"


class WeightPermissionDeniedError(WeightStoreError, PermissionError):
    """The caller's token is missing, unknown, or not for this tenant or this request; or the
    Master's certificate is not trusted. Nothing was changed."""

    code = "PERMISSION_DENIED"


class WeightInternalError(WeightStoreError):
    """A broken promise of the store itself; please report it."""

    code = "INTERNAL"


_BY_CODE = {cls.code: cls for cls in WeightStoreError.__subclasses__()}


def error_for(code: str, message: str) -> WeightStoreError:
    """The exception for an error code's name, e.g. ``error_for("BUSY", "2 leases")``."""
    return _BY_CODE.get(code, WeightInternalError)(message)
