"""Errors shown to the user, and how a run that was told to stop ends."""


class UserError(Exception):
    """Input that cannot be used as it is.

    The message is one line that names the file, line, option or value and says
    what to do. The command line prints it without a traceback and exits with 1.

    Example:
        >>> str(UserError("pairs.tsv, line 3: one column; put a tab between the two"))
        'pairs.tsv, line 3: one column; put a tab between the two'
    """


# Exit codes: after SIGTERM "try again", for a scheduler that takes machines away.
PREEMPTED, INTERRUPTED = 75, 130


class Stopped(BaseException):
    """Training was told to stop and has saved its state; the same command resumes it.

    It is no `Exception`, so that nothing on the way takes it for a failure.

    Args:
        message: one line.
        code: the exit code: 75 after SIGTERM, 130 after Ctrl-C.

    Example:
        >>> Stopped("stopped at step 300", INTERRUPTED).code
        130
    """

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code
