"""A server that speaks TensorFlow Serving's REST and gRPC protocols on this machine.

`configs` says which models to serve and `models` keeps their versions loaded. A request
comes in by `rest` or `grpc_api`, becomes tensors in `tensors`, and waits in `batching`
for a call of the model. `local` starts and stops it all.
"""


class ServingError(Exception):
    """An error that a client sees.

    Args:
        code: The name of a gRPC status code.
        message: What is wrong. White space becomes single spaces, and a long message is
            cut: gRPC sends it in a header, of which clients take 8 KiB.
        http_status: The HTTP status, if the code's own does not fit.

    Example:
        >>> ServingError("NOT_FOUND", "no such   model").message
        'no such model'
    """

    def __init__(self, code, message, http_status=None):
        message = " ".join(message.split())
        self.message = message if len(message) <= 1000 else f"{message[:1000]}..."
        super().__init__(self.message)
        self.code, self.http_status = code, http_status


def invalid(message):
    """A `ServingError` for a bad request."""
    return ServingError("INVALID_ARGUMENT", message)
