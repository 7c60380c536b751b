"""A server that speaks TensorFlow Serving's REST and gRPC protocols on this machine.

`configs` says which models to serve and `models` keeps their versions loaded. A request
comes in by `apis`, becomes tensors in `tensors`, and waits in `batching` for a call of
the model. `local` starts and stops it all.
"""

import textwrap
from typing import Annotated

from pydantic import Field

from tfxformer.config import Count, Positive, Settings

Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(Settings):
    """How to serve.

    Example:
        >>> ServerSettings(rest_port=0).host
        '127.0.0.1'
    """

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 is all of them."""
    rest_port: Port = 8501
    """The port for REST; 0 for a free one."""
    grpc_port: Port = 8500
    """The port for gRPC; 0 for a free one."""
    max_batch: Count = 64
    """The most texts in a call of the model."""
    batch_wait: Annotated[float, Field(ge=0)] = 2.0
    """Milliseconds that the first text of a batch waits for others."""
    max_waiting: Count = 4096
    """The most texts that wait for an answer; more are refused."""
    max_body: Count = 8 * 1024 * 1024
    """The most bytes in a request."""
    timeout: Positive = 30.0
    """Seconds that a REST request may take."""
    grace: Annotated[float, Field(ge=0)] = 30.0
    """Seconds that requests may take to finish at the end."""
    poll: Positive = 1.0
    """Seconds between two looks for new versions."""


class ServingError(Exception):
    """An error that a client sees.

    Args:
        code: The name of a gRPC status code.
        message: What is wrong, on one line. It is cut to fit into gRPC's headers.
        http_status: The HTTP status, if the code's own does not fit.

    Example:
        >>> str(ServingError("NOT_FOUND", "no such   model"))
        'no such model'
    """

    def __init__(self, code, message, http_status=None):
        message = textwrap.shorten(message[:2000], 1000, placeholder="...")
        super().__init__(message)
        self.code, self.http_status = code, http_status


def invalid(message):
    """A `ServingError` for a bad request."""
    return ServingError("INVALID_ARGUMENT", message)
