"""The local server: one process, one event loop, and a thread for the models."""

import asyncio
import contextlib
import signal
import socket

from tfxformer.console import say
from tfxformer.errors import UserError
from tfxformer.server.batching import Batcher
from tfxformer.server.configs import find_models, read_config
from tfxformer.server.grpc_api import create_server, set_serving
from tfxformer.server.models import Models
from tfxformer.server.rest import create_http_server
from tfxformer.server.settings import ServerSettings


def serve(repository, config=None, settings=None):
    """Serves models until SIGTERM or Ctrl-C.

    Args:
        repository: A folder of models, each to be served in its newest version.
        config: The path of a models.config, in place of a repository.
        settings: `ServerSettings`.

    Raises:
        UserError: If there is nothing to serve, or a port is taken.
        KeyboardInterrupt: After Ctrl-C, once all requests are answered.

    Example:
        >>> serve("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: no such folder
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
    """A server while the context lasts; yields its REST and its gRPC address."""
    find, place = (read_config, config) if config else (find_models, repository)
    models = Models(lambda: find(place))
    parts = (models, Batcher(settings), settings)
    # The ports first: loading takes longer than finding one taken.
    listener = _listen(settings.host, "--rest-port", settings.rest_port)
    _listen(settings.host, "--grpc-port", settings.grpc_port).close()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    grpc_server, health = create_server(*parts)
    grpc_port = grpc_server.add_insecure_port(f"{host}:{settings.grpc_port}")
    await models.start()
    http_server = create_http_server(*parts)
    http = asyncio.create_task(http_server.serve([listener]))
    watching = asyncio.create_task(models.watch(settings.poll))
    await grpc_server.start()
    await set_serving(health, True)
    while not http_server.started:
        await asyncio.sleep(0.01)
    rest, grpc = f"{host}:{listener.getsockname()[1]}", f"{host}:{grpc_port}"
    say(f"REST: http://{rest}\ngRPC: {grpc}\nready: {', '.join(models.configs)}")
    try:
        yield rest, grpc
    finally:
        say(f"stopping: requests have {settings.grace:g} seconds to finish")
        await set_serving(health, False)
        await asyncio.sleep(0.5)  # gRPC cancels requests that it has not looked at yet
        http_server.should_exit = True
        await asyncio.gather(grpc_server.stop(settings.grace), http)
        watching.cancel()


def _listen(host, option, port):
    """A socket that listens on a port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror.partition(" (")[0] + "; choose another, or 0 for any"
        raise UserError(f"{option} {port}: {host}:{port}: {reason}") from None
