"""Errors as TensorFlow Serving tells them: a gRPC status code and one message."""

import logging
import re

log = logging.getLogger("tfxformer")

# The HTTP status that TensorFlow Serving gives each gRPC code, in the codes' order.
HTTP_STATUS = {
    "OK": 200,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
CODES = [*HTTP_STATUS]  # by number, as TensorFlow's errors have them
# A message travels in an HTTP/2 header, of which clients take 8 KiB.
LONGEST_MESSAGE = 1000


class ServingError(Exception):
    """What a client is told.

    Args:
        code: a gRPC status code's name.
        message: one line.
        http_status: where HTTP has a better one than the code's.

    Example:
        >>> ServingError("NOT_FOUND", "no such model").http_status
        404
    """

    def __init__(self, code, message, http_status=None):
        message = " ".join(message.split())
        if len(message) > LONGEST_MESSAGE:
            message = message[:LONGEST_MESSAGE] + "..."
        super().__init__(message)
        self.code, self.message = code, message
        self.http_status = http_status or HTTP_STATUS[code]


def invalid(message):
    """A `ServingError` about what the client sent."""
    return ServingError("INVALID_ARGUMENT", message)


def from_tensorflow(error):
    """What a client is told of an error that TensorFlow raised.

    Args:
        error: a ``tf.errors.OpError``.

    Returns:
        A `ServingError` with its code and the reason alone: neither the stack of the
        graph nor names of its nodes.
    """
    reason = re.split(r"\[\[|\[Op:", str(error.message))[0]
    # Above it is where in the graph it happened, and in whose file.
    above = (
        r"Graph execution error:|<stack traces unavailable>|Detected at node|File \""
    )
    lines = (
        x.strip() for x in reason.splitlines() if not re.match(rf"\s*({above})", x)
    )
    reason = " ".join(line for line in lines if line)
    return ServingError(CODES[error.error_code], reason or type(error).__name__)


def unexpected(error):
    """What a client is told of a mistake of ours: nothing; the log has it all."""
    log.error("an error that nobody expected", exc_info=error)
    return ServingError("INTERNAL", "internal error; the server's log says more")
