"""What ends a training from outside: SIGTERM and Ctrl-C."""

import signal

from tfxformer.errors import Stopped


class Signals:
    """A context that catches SIGTERM and SIGINT.

    They end the run with one line, with ``wait`` only when the step is saved.
    """

    caught, wait = None, False

    def __enter__(self):
        numbers = signal.SIGTERM, signal.SIGINT
        self.before = {number: signal.signal(number, self._catch) for number in numbers}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _catch(self, number, _):
        if self.wait and self.caught is None:
            self.caught = number
        # Some schedulers send SIGTERM twice; a second Ctrl-C stops at once.
        elif not (self.wait and number == signal.SIGTERM):
            raise Stopped(number, "the same command resumes from the last checkpoint")
