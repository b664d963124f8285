"""A line over two pipes, such as the standard input and output of a program that ssh started on a host.

Framing is `multiprocessing.connection`'s; nothing is unpickled. ssh's ServerAliveInterval notices a cut network and ends
the pipe. `ways/programs.py` has the programs.
"""

import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from worldsize.engines.remote.line import MAX_MESSAGE_BYTES, HostLine


def line_over(read_fd: int, write_fd: int, other: str) -> HostLine:
    """Return a line over two pipes, which it closes. `other` names the other side in its reason for ending."""
    going = threading.Event()
    line = HostLine(going.set)
    reader = Connection(read_fd, writable=False)
    writer = Connection(write_fd, readable=False)
    threading.Thread(target=_read, args=(line, reader, other), name="worldsize-reader", daemon=True).start()
    threading.Thread(target=_write, args=(line, writer, going), name="worldsize-writer", daemon=True).start()
    return line


def _read(line: HostLine, reader: Connection, other: str) -> None:
    try:
        while not line.ended:
            line.deliver(reader.recv_bytes(MAX_MESSAGE_BYTES + 1000))
    except EOFError:
        line.end(f"{other} is gone")
    except OSError as error:
        line.end(f"{other} is gone: {error}")
    reader.close()


def _write(line: HostLine, writer: Connection, going: threading.Event) -> None:
    with suppress(OSError):
        while not line.ended:
            going.wait(1.0)
            going.clear()
            while (data := line.next_going()) is not None:
                writer.send_bytes(data)
                line.gone()

            if line.closed:
                break
    writer.close()


def line_of_this_process() -> HostLine:
    """Return a line over pipes, this process's standard input and output, and detach both from everything else."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # later prints go to stderr, not into the line
    os.close(nothing)
    return line_over(read_fd, write_fd, "the head")
