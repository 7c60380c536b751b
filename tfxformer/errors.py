"""What is meant for the person at the keyboard."""


class UserError(Exception):
    """Input that cannot be used as it is.

    The message is one line that names the file, line, option or value and says
    what to do. The command line prints it without a traceback and exits with 1.

    Example:
        >>> str(UserError("pairs.tsv, line 3: one column; put a tab between the two"))
        'pairs.tsv, line 3: one column; put a tab between the two'
    """


# What the command line exits with: "try again" for a scheduler that took the machine.
PREEMPTED, INTERRUPTED = 75, 130


class Stopped(BaseException):
    """Training was told to stop and has saved its state; the same command goes on.

    Like `KeyboardInterrupt` it is no `Exception`, so that nothing on the way takes it
    for a failure of its own.

    Args:
        message: one line.
        code: what the command line exits with: 75 (try again) after SIGTERM, 130
            after Ctrl-C.

    Example:
        >>> Stopped("stopped at step 300", INTERRUPTED).code
        130
    """

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code
