"""Listening on an address until a signal comes: the local server and the demo do."""

import asyncio
import signal
import socket


def bind(host, port):
    """A socket for HTTP, not yet listening.

    Args:
        host: the address, or the name of one.
        port: 0 for one that is free.

    Returns:
        A bound socket.

    Raises:
        OSError: when the port is taken, or there is no such address.

    Example:
        >>> with bind("127.0.0.1", 0) as listener:
        ...     listener.getsockname()[1] > 0
        True
    """
    family, *_, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def in_address(host):
    """A host as it stands in an address, before a port.

    Args:
        host: a name, or an IPv4 or IPv6 address.

    Returns:
        Text.

    Example:
        >>> in_address("::1"), in_address("localhost")
        ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host else host


def told_to_end():
    """What waits for SIGTERM or Ctrl-C, in a running event loop.

    Returns:
        A future of the signal's number.
    """
    loop = asyncio.get_running_loop()
    told = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(
            number, lambda n=number: told.done() or told.set_result(n)
        )
    return told
