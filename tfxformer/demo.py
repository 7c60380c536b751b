"""Serves the model's page to this machine: `tfxformer demo`."""

import contextlib
import http.server
import signal
import sys

from tfxformer.console import say
from tfxformer.errors import UserError

HOST = "127.0.0.1"  # this machine alone


def serve_page(make, port=7860):
    """Serves a page until SIGTERM or Ctrl-C; prints its address when it is ready.

    Args:
        make: a function that returns the page, as bytes. It may take long: the port is
            checked before.
        port: the port; 0 for a free one.

    Raises:
        UserError: the port is taken.
        SystemExit: after SIGTERM.
        KeyboardInterrupt: after Ctrl-C.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/":
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the reader has left
                self.wfile.write(page)

        def log_message(self, *_):
            """Keeps requests out of the terminal."""

    try:
        server = http.server.ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        hint = "choose another one, or 0 for a free one"
        raise UserError(f"--port {port}: {error.strerror}: {hint}") from None
    with server:
        page = make()
        print(f"http://{HOST}:{server.server_port}/", flush=True)
        say("press Ctrl-C to end it")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server.serve_forever()
