"""TensorBoard event files of a run, written by tensorboardX.

Its `SummaryWriter` writes in a background thread. A full disk kills that thread, and calls block
forever once its queue is full. So events are written in the calling thread, where an error can be
reported.
"""

import importlib.util
import pathlib
import time

from lra.errors import UserError
from lra.files import naming


class Events:
    """Writer of an event file.

    Args:
        folder: Folder of the event files; earlier ones in it are kept.
        first: Step from which on earlier events are hidden.
    """

    def __init__(self, folder: pathlib.Path, first: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._folder = folder
        folder.mkdir(exist_ok=True)
        with naming(folder):
            self._writer = EventsWriter(str(folder / "events"))
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(step=first, wall_time=time.time(), session_log=start))

    def add(self, tag: str, value: float, step: int) -> None:
        """Add a number; `flush` writes it."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        event = Event(step=step, wall_time=time.time(), summary=scalar(tag, value))
        with naming(self._folder):
            self._writer.write_event(event)

    def flush(self) -> None:
        """Write what was added."""
        with naming(self._folder):
            self._writer.flush()

    def close(self) -> None:
        """Write what was added, and close the file."""
        with naming(self._folder):
            self._writer.close()


def check_events() -> None:
    """Raise UserError if tensorboardX is not installed."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise UserError("--tensorboard needs tensorboardX: pip install tensorboardX")
