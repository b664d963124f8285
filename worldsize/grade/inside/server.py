"""The server inside a sandbox: it imports torch or TensorFlow before any submission comes, then forks ranks on request.

Orders come as JSON over a packet socket, with the far ends of a rank's line. A forked process is the first of its own
PID namespace, enters its other namespaces, and only then reads from that line; the server reads no submission.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from worldsize.grade.inside import changed_objects, stub_front
from worldsize.grade.inside.confinement import close_all_but, confine
from worldsize.grade.isolation import limits, namespaces, privileges, seccomp
from worldsize.grade.pipes import PipeEnds

if TYPE_CHECKING:
    from worldsize.grade.isolation.bubblewrap import Framework, SandboxMode

MAX_ORDER_BYTES = 65536
_MOST_DESCRIPTORS = 128
_FAILED = 70  # exit code of a rank's process that fails before its job

_FRAMEWORKS: dict[Framework, tuple[str, ...]] = {
    "torch": ("torch", "torch.distributed", "worldsize.grade.inside.broker_wire", "worldsize.grade.inside.played_case",
              "worldsize.grade.inside.warden"),
    "tensorflow": ("tensorflow", "keras", "tf_keras", "worldsize.grade.inside.tensorflow_task"),
}
# the first DistributedDataParallel, optimizer and backward(gradient) import these late, for seconds
_LATE = dict.fromkeys(("torch.nn.parallel", "torch.optim"), ("torch.fx.experimental.symbolic_shapes", "torch._dynamo"))
_MODULES = ("numpy", "worldsize.grade.inside.sandboxed_rank", "worldsize.report")


def main(control: int, mode: SandboxMode, framework: Framework) -> None:
    """Serve orders from the descriptor `control` until it closes, as the server's entry point."""
    gc.disable()  # collections take a fifth of the imports' time
    if mode == "own":
        privileges.become_nobody()
        namespaces.enter_namespaces()

    for module in (*_FRAMEWORKS[framework], *_MODULES):
        importlib.import_module(module)
    stub_front.install()
    importlib.import_module("worldsize.grade.inside.sandboxed_rank").warm(framework)

    changed_objects.remember()
    server = _Server(socket.socket(fileno=control), mode)
    server.say({"op": "ready"})
    server.serve()


class _Server:
    def __init__(self, control: socket.socket, mode: SandboxMode) -> None:
        self._control = control
        self._mode = mode
        self._pid_namespace = namespaces.PidNamespace() if mode != "unsafe" else None
        self._ranks: dict[int, int] = {}  # {process: number}
        self._wakes, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only a signal with a handler writes to `wakes`
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def say(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._control, self._wakes], [], [])
            if self._wakes in ready:
                with suppress(BlockingIOError):
                    os.read(self._wakes, 4096)
                self._reap()
            if self._control in ready and not self._obey():
                return

    def _obey(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, MAX_ORDER_BYTES, _MOST_DESCRIPTORS)
        if not data:
            return False

        order = json.loads(data)
        if order["op"] == "spawn":
            self._spawn(order, list(map(PipeEnds, descriptors[::2], descriptors[1::2])))
        elif order["op"] == "kill":
            for process, number in self._ranks.items():
                if number == order["number"]:
                    with suppress(ProcessLookupError):  # it may not have called setsid yet
                        os.killpg(process, signal.SIGKILL)
                    os.kill(process, signal.SIGKILL)
        elif order["op"] == "import":
            for name in order["modules"]:
                for module in (name, *_LATE.get(name, ())):
                    with suppress(Exception):
                        importlib.import_module(module)

        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _spawn(self, order: dict, lines: Sequence[PipeEnds]) -> None:
        gc.freeze()  # so that a collection in a rank does not copy the server's memory
        watched = order["watched"]
        if self._pid_namespace is None or watched:
            process = os.fork()
        else:
            process = self._pid_namespace.fork()

        if process == 0:
            if watched:
                _oversee(order, lines, self._mode, self._pid_namespace)
            _enter(order, lines, self._mode)
        self._ranks[process] = order["number"]

    def _reap(self) -> None:
        while True:
            try:
                process, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return

            number = self._ranks.pop(process, None)
            if number is not None:
                code = os.waitstatus_to_exitcode(status)
                if code < 0:
                    code = 128 - code  # 128 + signal, as a shell reports it
                self.say({"op": "ended", "number": number, "code": code, "cpu_s": used.ru_utime + used.ru_stime})


def _enter(order: dict, lines: Sequence[PipeEnds], mode: SandboxMode) -> NoReturn:
    """Run a rank's process that the server forked, from the fork on: isolation, then the job."""
    from worldsize.grade.inside import sandboxed_rank
    from worldsize.grade.inside.broker_channel import BrokerChannel

    try:
        _begin_process()
        close_all_but(lines)
        sandboxed_rank.silence_output()

        confine(order, mode)
        if order["together"]:
            _group(order, lines)
        _refuse_calls(order)
        sandboxed_rank.serve(BrokerChannel(lines[0], sandboxed_rank.is_only_thread))
    finally:
        os._exit(_FAILED)


def _oversee(
    order: dict, lines: Sequence[PipeEnds], mode: SandboxMode, pid_namespace: namespaces.PidNamespace
) -> NoReturn:
    """Run the warden's process, which keeps the server's rights and starts the keepers of saves itself."""
    from worldsize.grade.inside import sandboxed_rank, warden
    from worldsize.grade.inside.broker_channel import BrokerChannel

    try:
        _begin_process()
        close_all_but(lines, pid_namespace.home)
        sandboxed_rank.silence_output()
        if mode == "fresh":
            # the keepers, which share this sandbox, cannot read their own size later
            order["address_bytes"] = limits.size_bytes() + order["memory_bytes"]
            namespaces.hide_processes(order["named"])
            namespaces.cover(order["covered"])
        warden.oversee(BrokerChannel(lines[0], sandboxed_rank.is_only_thread), order, mode, pid_namespace.fork)
    finally:
        os._exit(_FAILED)


def _begin_process() -> None:
    os.setsid()  # its own group, so that signals to the group stay inside
    privileges.end_with_parent()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _refuse_calls(order: dict) -> None:
    if "filter" in order:
        seccomp.install(bytes.fromhex(order["filter"]))


def _group(order: dict, lines: Sequence[PipeEnds]) -> NoReturn:
    """Fork the server's ranks that share these namespaces, because they share a process group, and wait for them."""
    from worldsize.grade.inside import sandboxed_rank
    from worldsize.grade.inside.broker_channel import BrokerChannel

    kept, addresses = [], []
    for _ in lines:  # reserve an address per rank
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that sets it too, as gRPC's does, can bind
        bound.bind(("127.0.0.1", 0))
        kept.append(bound)
        addresses.append(f"127.0.0.1:{bound.getsockname()[1]}")

    for line in lines:
        if os.fork() == 0:
            close_all_but([line])
            _refuse_calls(order)
            sandboxed_rank.serve(BrokerChannel(line, sandboxed_rank.is_only_thread), addresses)

    close_all_but([], *(bound.fileno() for bound in kept))
    with suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
