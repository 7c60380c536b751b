"""The local server: one process, one event loop, the models in a few threads."""

import asyncio
import signal
from dataclasses import dataclass

from tfxformer.console import say
from tfxformer.errors import UserError
from tfxformer.listening import bind, in_address, told_to_end
from tfxformer.server.batching import Batcher
from tfxformer.server.configs import configs_of
from tfxformer.server.grpc_api import create_server, set_serving
from tfxformer.server.metrics import Metrics
from tfxformer.server.models import Models
from tfxformer.server.rest import HttpServer, RestApi
from tfxformer.server.tensors import Limits

# Seconds from SIGTERM to the moment when no more requests are taken.
_LINGER = 0.5


@dataclass(frozen=True)
class Settings:
    """How the server serves.

    Args:
        host: the address to listen on.
        rest_port: for HTTP; 0 for one that is free.
        grpc_port: for gRPC; 0 for one that is free.
        max_batch: the most rows of one call of a model.
        batch_wait: milliseconds that the first of a batch waits for others.
        max_waiting: the most rows that wait for their call; more are refused.
        max_body: the most bytes of a request.
        max_rows: the most rows of a request.
        max_text: the most bytes of a text.
        timeout: seconds that a REST request may take.
        read_timeout: seconds in which a request must have arrived.
        max_connections: HTTP connections, and gRPC calls, at the same time.
        grace: seconds that requests may take to finish when the server is to stop.
        poll: seconds between two looks for new versions.
        threads: calls of models at the same time.

    Example:
        >>> Settings(rest_port=0).host
        '127.0.0.1'
    """

    host: str = "127.0.0.1"
    rest_port: int = 8501
    grpc_port: int = 8500
    max_batch: int = 64
    batch_wait: float = 2.0
    max_waiting: int = 4096
    max_body: int = 8 * 1024 * 1024
    max_rows: int = 1024
    max_text: int = 64 * 1024
    timeout: float = 30.0
    read_timeout: float = 10.0
    max_connections: int = 512
    grace: float = 30.0
    poll: float = 1.0
    threads: int = 1

    @property
    def limits(self):
        """What one request may hold, `tensors.Limits`."""
        return Limits(self.max_rows, self.max_text, self.max_body)


def serve(repository=None, config=None, settings=None):
    """Serves models until SIGTERM or Ctrl-C.

    Args:
        repository: a folder of models, each served in its newest version; None for
            ./export, or else the newest quickstart's.
        config: the path of a models.config instead.
        settings: `Settings`.

    Raises:
        UserError: when there is nothing to serve, or a port is taken.
        KeyboardInterrupt: after Ctrl-C, when all requests were answered.

    Example:
        >>> serve("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: no such folder
    """
    settings = settings or Settings()
    if settings.max_waiting < settings.max_rows:
        raise UserError(
            f"--max-waiting {settings.max_waiting}: less than the rows of one request, "
            f"--max-rows {settings.max_rows}"
        )
    configs = configs_of(repository, config)
    if asyncio.run(_serve(configs, settings)) == signal.SIGINT:
        raise KeyboardInterrupt


async def _serve(configs, settings):
    """Serves; returns the signal that ended it."""
    told = told_to_end()
    metrics = Metrics()
    models = Models(configs, metrics)
    batcher = Batcher(
        metrics,
        settings.threads,
        settings.max_batch,
        settings.batch_wait / 1000,
        settings.max_waiting,
        settings.limits.elements,
    )
    grpc_server, health = create_server(models, batcher, metrics, settings)
    # Before models are loaded, which takes longer than to see that a port is taken.
    listener, rest_port = _bind(settings.host, settings.rest_port)
    grpc_port = _bind_grpc(grpc_server, settings)
    loading = asyncio.ensure_future(models.start())
    await asyncio.wait({loading, told}, return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        loading.cancel()
        models.stop()
        return told.result()
    loading.result()

    batcher.start()
    rest = RestApi(models, batcher, metrics, settings)
    http_server = HttpServer(rest, settings)
    http = asyncio.create_task(http_server.serve([listener]))
    watching = asyncio.create_task(models.watch(settings.poll))
    await grpc_server.start()
    await set_serving(health, True)
    while not http_server.started:
        await asyncio.sleep(0.01)
    host = in_address(settings.host)
    say(f"REST: http://{host}:{rest_port}")
    say(f"gRPC: {host}:{grpc_port}")
    say("ready: " + ", ".join(models.names()))

    number = await told
    say(f"stopping: requests that are here have {settings.grace:g} seconds to finish")
    await set_serving(health, False)
    # What was on its way is let in: gRPC would cancel what it has not yet looked at.
    await asyncio.sleep(_LINGER)
    http_server.should_exit = True
    await asyncio.gather(grpc_server.stop(settings.grace), http)
    watching.cancel()
    models.stop()
    await batcher.stop()
    return number


def _bind(host, port):
    try:
        listener = bind(host, port)
    except OSError as error:
        raise _busy("--rest-port", host, port, error.strerror) from None
    return listener, listener.getsockname()[1]


def _bind_grpc(server, settings):
    host, port = settings.host, settings.grpc_port
    try:
        return server.add_insecure_port(f"{in_address(host)}:{port}")
    except RuntimeError:
        raise _busy("--grpc-port", host, port, "cannot be listened on") from None


def _busy(option, host, port, reason):
    return UserError(
        f"{option} {port}: {host}:{port}: {reason}; is a server running there? Choose "
        "another port, or 0 for one that is free"
    )
