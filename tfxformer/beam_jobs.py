"""Jobs that Apache Beam does: on this machine, or on a cluster by naming a runner.

What travels through Beam are numbers, paths and short reports, never text: its local
runner keeps in memory what it passes from step to step. Workers read and write files.
"""

import contextlib
import importlib.util
import io
import json
import logging
import shlex
import signal
import sys
import threading
import time

from tfxformer import storage
from tfxformer.console import start_logging
from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# Seconds between two lines of progress.
SAY_EVERY = 15
# After Ctrl-C, where jobs are done in this process.
_interrupted = threading.Event()


def check_installed(command):
    """Refuses to go on without Beam.

    Raises:
        UserError: with what to install.
    """
    if importlib.util.find_spec("apache_beam") is None:
        raise UserError(f"{command} needs Apache Beam: pip install 'tfxformer[beam]'")


class Pipeline:
    """Does jobs on a runner of Beam.

    Args:
        runner: its name.
        options: further options of Beam, as on its command line.
        hint: how to name what is no option, such as "name sources with --data".

    Raises:
        UserError: when there is no such runner or option.
    """

    def __init__(self, runner, options, hint):
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import (
            PipelineOptions,
            StandardOptions,
        )
        from apache_beam.runners.runner import create_runner

        self._name, self._flags = runner, list(options)
        self._is_local = runner.lower() in ("direct", "directrunner")
        if self._flags and not self._flags[0].startswith("--"):
            raise UserError(
                f"{self._flags[0]!r}: {hint}, and Beam's options as --name=value"
            )
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                known = PipelineOptions(self._flags)
                every = known.get_all_options(retain_unknown_options=True)
                if self._is_local:
                    every = every.keys() - known.get_all_options().keys()
        except SystemExit:
            raise UserError(f"Beam's options: {_line(said.getvalue())}") from None
        # Storage may have options, such as --hdfs_host.
        FileSystems.set_options(known)
        if known.view_as(StandardOptions).runner:
            raise UserError("name the runner with --runner before the --")
        if self._is_local and every:
            raise UserError(f"--{min(every)}: Beam has no such option on this machine")
        if not self._is_local:
            try:
                create_runner(runner)
            except (ValueError, ImportError, AttributeError, TypeError) as error:
                raise UserError(f"--runner {runner}: {_line(error)}") from None

    def run(self, jobs, step, path):
        """Does a step for each job, and waits until all are done.

        Args:
            jobs: tuples that begin with the job's number.
            step: a function of what is in a tuple; it returns a dict.
            path: where the workers leave what came of it.

        Returns:
            The dicts, in the order of the jobs.

        Raises:
            UserError: what the first job raised that failed.
        """
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        options = PipelineOptions(self._flags)
        _interrupted.clear()
        try:
            runner = _local_runner(options) if self._is_local else self._name
            with beam.Pipeline(runner, options) as pipeline:
                (
                    pipeline
                    | beam.Create(jobs)
                    | beam.Reshuffle()
                    | beam.Map(_do, step)
                    | beam.combiners.ToList()
                    | beam.Map(_write_reports, path)
                )
        except Exception as error:
            if _interrupted.is_set():
                raise KeyboardInterrupt from None
            if self._is_local:
                raise
            # Whatever a cluster may have against it.
            raise UserError(f"--runner {self._name}: {_line(error)}") from error
        if _interrupted.is_set():
            raise KeyboardInterrupt
        reports = json.loads(storage.read(path))
        for report in reports:
            if "error" in report:
                raise UserError(report["error"])
        return reports


def _local_runner(options):
    # DirectRunner means this one in the end, but first it would fetch another one,
    # written in Go, from the network.
    from apache_beam.options.pipeline_options import DirectOptions
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    environment = None
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_processing":
        direct.direct_running_mode = "in_memory"  # or it takes its own environment
        environment = SubprocessSDKEnvironment.from_command_string(
            f"exec {shlex.quote(sys.executable)} -m {__name__}"
            + ("" if log.isEnabledFor(logging.INFO) else " --quiet")
        )
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(
        environment, provision_info=fn_runner.ExtendedProvisionInfo(info)
    )


def _work():
    """What a worker process on this machine does: Beam's harness, but quietly."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    start_logging(quiet="--quiet" in sys.argv)
    logging.root.addHandler(logging.NullHandler())  # or Beam sets up its own
    with less_talk():
        from apache_beam.runners.worker import sdk_worker_main

        sdk_worker_main.main(None)


def _do(job, step):
    """Does a job; what the user can mend comes back as a report, not as a traceback."""
    if _interrupted.is_set():
        return {"number": job[0]}
    try:
        return {"number": job[0], **step(*job)}
    except KeyboardInterrupt:
        # Beam would make an error of it, and tell at length where it came from.
        _interrupted.set()
        return {"number": job[0]}
    except UserError as error:
        line = str(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        line = f"{where}{error.strerror or error}"
    # Beam passes on no name of a file that is not UTF-8.
    return {"number": job[0], "error": line.encode(errors="replace").decode()}


def _write_reports(reports, path):
    reports.sort(key=lambda report: report["number"])
    storage.write(path, json.dumps(reports).encode())


def _line(error):
    """The last line of an error, which says what it is."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


@contextlib.contextmanager
def less_talk():
    """Keeps Beam's own log to errors."""
    beam = logging.getLogger("apache_beam")
    level, disabled = beam.level, logging.root.manager.disable
    beam.setLevel(logging.ERROR)
    # What it says while it is imported, it says under no name.
    logging.disable(max(disabled, logging.WARNING))
    try:
        import apache_beam  # noqa: F401
    finally:
        logging.disable(disabled)
    try:
        yield
    finally:
        beam.setLevel(level)


class Pace:
    """Says when it is time for another line of progress."""

    def __init__(self):
        self._said = time.monotonic()

    def is_due(self):
        """Whether the last line, or the beginning, is some seconds ago."""
        due = time.monotonic() - self._said > SAY_EVERY
        if due:
            self._said = time.monotonic()
        return due


if __name__ == "__main__":
    _work()
