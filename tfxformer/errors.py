"""The one error that is meant for the person at the keyboard."""


class UserError(Exception):
    """Input that cannot be used as it is.

    The message is one line that names the file, line, option or value and says
    what to do. The command line prints it without a traceback and exits with 1.
    """
