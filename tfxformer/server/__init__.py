"""A server that speaks TensorFlow Serving's protocols, and a client for both."""

import importlib

_HOME_OF = {"Client": "client", "ServerError": "client", "serve": "local"}
__all__ = [*_HOME_OF]


def __getattr__(name):
    # The client wants no TensorFlow, the server does.
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
