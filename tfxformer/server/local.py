"""The local server: one process, one event loop, and a thread for the models."""

import asyncio
import contextlib
import signal
import socket

import uvicorn

from tfxformer.console import say
from tfxformer.errors import UserError
from tfxformer.server import ServerSettings
from tfxformer.server.apis import RestApi, create_grpc_server
from tfxformer.server.batching import Batcher
from tfxformer.server.configs import find_models
from tfxformer.server.models import Models

POLL = 1.0  # seconds between checks for new versions


def serve(repository, config=None, settings=None):
    """Serves the models of `configs.find_models` until SIGTERM or Ctrl-C.

    Raises:
        UserError: There is no model to serve, or a port is taken.
        KeyboardInterrupt: After Ctrl-C, once all requests are answered.
    """

    async def until_told():
        async with running(repository, config, settings or ServerSettings()):
            loop, told = asyncio.get_running_loop(), asyncio.Queue()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, told.put_nowait, number)
            return await told.get()

    if asyncio.run(until_told()) == signal.SIGINT:
        raise KeyboardInterrupt


@contextlib.asynccontextmanager
async def running(repository, config, settings):
    """A context with a running server; yields its REST and gRPC addresses."""
    models = Models(lambda: find_models(repository, config))
    parts = (models, Batcher(settings), settings)
    # Check the ports first, since loading takes long.
    listener = _listen(settings.host, "--rest-port", settings.rest_port)
    _listen(settings.host, "--grpc-port", settings.grpc_port).close()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    grpc_server, health = create_grpc_server(*parts)
    grpc_port = grpc_server.add_insecure_port(f"{host}:{settings.grpc_port}")
    await models.start()
    quiet = {"log_config": None, "log_level": "critical"}
    grace = {"timeout_graceful_shutdown": settings.grace}
    http_server = uvicorn.Server(uvicorn.Config(RestApi(*parts), **quiet, **grace))
    http_server.capture_signals = contextlib.nullcontext  # `serve` handles them
    http = asyncio.create_task(http_server.serve([listener]))
    watching = asyncio.create_task(models.watch(POLL))
    await grpc_server.start()
    rest, grpc = f"{host}:{listener.getsockname()[1]}", f"{host}:{grpc_port}"
    say(f"REST: http://{rest}\ngRPC: {grpc}\nready: {', '.join(models.configs)}")
    try:
        yield rest, grpc
    finally:
        say(f"stopping: requests have {settings.grace:g} seconds to finish")
        await health.enter_graceful_shutdown()
        await asyncio.sleep(0.5)  # gRPC would cancel requests that just arrived
        http_server.should_exit = True
        await asyncio.gather(grpc_server.stop(settings.grace), http)
        watching.cancel()


def _listen(host, option, port):
    """A socket listening on a port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror.partition(" (")[0] + "; choose another, or 0 for any"
        raise UserError(f"{option} {port}: {host}:{port}: {reason}") from None
