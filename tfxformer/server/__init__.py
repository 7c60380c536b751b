"""A local server with TensorFlow Serving's REST and gRPC APIs.

`configs` finds the models to serve and `models` keeps their versions loaded. A request
arrives in `apis`, becomes tensors in `tensors`, and waits in `batching` for a call of
the model. `local` starts and stops the server.
"""

import textwrap
from typing import Annotated

from pydantic import Field

from tfxformer.config import Count, Positive, Settings

Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(Settings):
    """The settings of the server."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for all."""
    rest_port: Port = 8501
    """The port for REST; 0 for a free one."""
    grpc_port: Port = 8500
    """The port for gRPC; 0 for a free one."""
    max_batch: Count = 64
    """The most texts in one call of the model."""
    enable_batching: bool = False
    """Batch the requests to any model. By default, only exports of tfxformer are
    batched: their answers never depend on the other texts of a call."""
    batch_wait: Annotated[float, Field(ge=0)] = 2.0
    """Milliseconds that the first text of a batch waits for more."""
    max_waiting: Count = 4096
    """The most unanswered texts; the server refuses more."""
    max_body: Count = 8 * 1024 * 1024
    """The most bytes in a request."""
    timeout: Positive = 30.0
    """Seconds until a REST request times out."""
    grace: Annotated[float, Field(ge=0)] = 30.0
    """Seconds for pending requests to finish at shutdown."""


class ServingError(Exception):
    """An error for a client: the name of a gRPC status code, and a message.

    The message is cut to one line that fits into gRPC's headers. ``http_status``
    replaces the code's usual HTTP status.
    """

    def __init__(self, code, message, http_status=None):
        message = textwrap.shorten(message[:2000], 1000, placeholder="...")
        super().__init__(message)
        self.code, self.http_status = code, http_status


def invalid(message):
    """A `ServingError` for a bad request."""
    return ServingError("INVALID_ARGUMENT", message)
