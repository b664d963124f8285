"""ØMQ's sockets as lines: one thread owns every socket, and carries messages between sockets and their `HostLine`s.

CURVE (http://curvezmq.org) authenticates and encrypts. ØMQ's heartbeats, answered by its I/O thread whatever Python does,
notice a lost peer. Measured: a frame must pass well within the heartbeat's time-out, so messages are short; ØMQ takes a
reader that stops for lost, so this thread always reads. `head_listener.py` and `host_program.py` admit peers.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from worldsize.engines.remote.line import MAX_MESSAGE_BYTES, HostLine

_AT_ONCE = 1000  # messages read from one line before the next line's turn
_GOING = 64  # messages that ØMQ holds for a slow network; the rest wait in their line


def set_options(socket: zmq.Socket) -> None:
    """Set the options that a line's sockets need at both ends."""
    socket.linger = 2000  # ms after `close` to send what is left
    socket.maxmsgsize = MAX_MESSAGE_BYTES + 1000  # a longer frame ends the connection before it is stored
    socket.handshake_ivl = 3000  # disconnects strangers who say nothing

    socket.heartbeat_ivl = 500  # ms, as all times here: a lost peer is noticed after 2 to 3 s
    socket.heartbeat_timeout = 2000
    socket.heartbeat_ttl = 2500

    socket.rcvhwm = 0  # unlimited: a full queue would cost the connection
    socket.sndhwm = _GOING
    socket.reconnect_ivl = -1  # never: a lost line stays lost


@dataclass(eq=False)
class Carried:
    """A socket, its monitor, and the line that it serves. `descriptor` is the connection's, once known."""

    socket: zmq.Socket
    monitor: zmq.Socket
    line: HostLine
    descriptor: int | None = None
    full: bool = False  # ØMQ takes no more at this moment


@dataclass(eq=False)
class Carrier:
    """The thread that carries lines, and its ØMQ sockets. `event` gets what a monitor reports, and may end the line."""

    event: Callable[[Carried, int, int], None]
    context: zmq.Context = field(default_factory=zmq.Context)
    carried: list[Carried] = field(default_factory=list)
    others: dict[zmq.Socket, Callable[[], None]] = field(default_factory=dict)  # sockets with their own handlers
    kept: list[Any] = field(default_factory=list)  # closed at the end

    def __post_init__(self) -> None:
        self._orders: list[tuple[Callable[[], Any], Future]] = []  # from other threads
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._closing = False
        self._thread = threading.Thread(target=self._carry, name="worldsize-carrier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        try:
            os.write(self._wake, b"!")
        except (BlockingIOError, BrokenPipeError):  # the pipe is full, so the thread will wake; or the thread has ended
            return

    def do(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the thread that owns the sockets, and return its result or raise its error."""
        answer: Future = Future()
        self._orders.append((work, answer))
        self.wake()
        return answer.result()

    def close(self) -> None:
        """Send what is queued, close the sockets, and end the thread."""
        self._closing = True
        self.wake()
        self._thread.join(5)

    def drop(self, carried: Carried) -> None:
        """Close a socket; ØMQ still sends what it holds."""
        carried.line.end("closed")
        self.carried.remove(carried)
        carried.socket.disable_monitor()
        carried.monitor.close(0)
        carried.socket.close()

    def _carry(self) -> None:
        while not (self._closing and not any(c.line.next_going() for c in self.carried if not c.line.ended)):
            poller = zmq.Poller()
            poller.register(self._woken, zmq.POLLIN)
            for socket in self.others:
                poller.register(socket, zmq.POLLIN)
            for carried in self.carried:
                poller.register(carried.monitor, zmq.POLLIN)
                poller.register(carried.socket, zmq.POLLIN | (zmq.POLLOUT if carried.full else 0))

            ready = dict(poller.poll(1000 if self._closing else None))
            if self._woken in ready:
                os.read(self._woken, 4096)
            while self._orders:
                work, answer = self._orders.pop(0)
                try:
                    answer.set_result(work())
                except BaseException as error:
                    answer.set_exception(error)

            for socket, serve in list(self.others.items()):
                if socket in ready:
                    serve()
            for carried in list(self.carried):
                self._serve(carried, ready)

        for carried in list(self.carried):
            self.drop(carried)
        for socket in self.others:
            socket.close(0)
        self.context.term()  # returns when everything is sent, or after the sockets' linger
        os.close(self._woken)
        for item in self.kept:
            item.close()

    def _serve(self, carried: Carried, ready: dict) -> None:
        if carried.socket in ready and ready[carried.socket] & zmq.POLLIN:
            self._receive(carried, _AT_ONCE)
        if carried.monitor in ready:
            told = recv_monitor_message(carried.monitor)
            self._receive(carried, None)  # messages that came before the event
            self.event(carried, told["event"], told["value"])

        carried.full = False
        while not carried.line.ended and not carried.full and (data := carried.line.next_going()) is not None:
            try:
                carried.socket.send(data, zmq.NOBLOCK)
                carried.line.gone()
            except zmq.Again:
                carried.full = True

        over = carried.line.closed and carried.line.next_going() is None
        if carried.line.ended or over:
            self.drop(carried)

    def _receive(self, carried: Carried, most: int | None) -> None:
        """Deliver messages from sockets to their line, at most `most`, so that a busy line does not starve the others."""
        received = 0
        while not carried.line.ended and received != most and carried.socket.poll(0):
            received += 1
            frame = carried.socket.recv(copy=False)
            if carried.descriptor is None:
                carried.descriptor = frame.get(zmq.SRCFD)

            if frame.more:
                carried.line.end("the other side sent a message in parts")
                return
            carried.line.deliver(frame.bytes)
