"""An ssh server on a host of `namespaces`, with keys that are thrown away: no user's keys or settings are read or written.

Who logs in is who runs the tests, with a key that only these servers know. Left out: passwords, PAM, forwarding.
"""

import contextlib
import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import namespaces
from tests.support.daemons import daemon, until
from tests.support.namespaces import Host

_LIMIT_S = 30.0
# sshd asks for its whole path, and for an empty folder that Debian's service makes when it starts one
_START = 'mkdir -p /run/sshd && exec "$(command -v sshd)" -D -e -f "$0"'
_CONF = """\
ListenAddress {address}:22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/pid
AuthenticationMethods publickey
PermitRootLogin prohibit-password
# the keys lie in a temporary folder, and the folder for them may be open to all
StrictModes no
UsePAM no
PrintMotd no
AllowTcpForwarding no
X11Forwarding no
Subsystem sftp internal-sftp
{more}
"""
# after the settings of who logs in, which may change PATH
_WITH_PATH = 'ForceCommand env PATH={path} sh -c "$SSH_ORIGINAL_COMMAND"'


@dataclass(frozen=True)
class Sshd:
    """A server that accepts connections: `ssh *options destination command`."""

    host: Host
    folder: Path

    @property
    def destination(self) -> str:
        return f"{getpass.getuser()}@{self.host.address}"

    @property
    def options(self) -> list[str]:
        """What ssh, scp and sftp need to be told; with -F they read nobody's settings."""
        said = {"IdentityFile": "user_key", "UserKnownHostsFile": "known_hosts", "GlobalKnownHostsFile": "known_hosts"}
        files = [f"-o{name}={self.folder / file}" for name, file in said.items()]
        return ["-F", "none", *files, "-oIdentitiesOnly=yes", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes"]

    @property
    def config(self) -> str:
        """What a person has in ssh_config to reach it by the host's name."""
        files = {"IdentityFile": "user_key", "UserKnownHostsFile": "known_hosts"}
        lines = [f"{name} {self.folder / file}" for name, file in files.items()]
        return "\n    ".join([f"Host {self.host.name}", f"HostKeyAlias {self.host.address}", *lines]) + "\n"

    def command(self, command: str) -> list[str]:
        """What runs `command`, words for the host's shell, by ssh."""
        return ["ssh", *self.options, self.destination, command]


@contextlib.contextmanager
def sshd(host: Host, path: str = "") -> Iterator[Sshd]:
    """A server on `host`; `path` is what commands there have as PATH. At the end it and its connections are ended."""
    with tempfile.TemporaryDirectory(prefix="worldsize-sshd-") as made:
        folder = Path(made)
        for key in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(folder / key)]
            subprocess.run(command, check=True, timeout=_LIMIT_S)
        (folder / "known_hosts").write_text(f"{host.address} {(folder / 'host_key.pub').read_text()}")
        more = _WITH_PATH.format(path=path) if path else ""
        (folder / "sshd_config").write_text(_CONF.format(address=host.address, folder=folder, more=more))
        command = host.command(["sh", "-c", _START, str(folder / "sshd_config")])
        with daemon(command, folder / "log"):
            until(lambda: "Server listening" in (folder / "log").read_text(), _LIMIT_S, f"sshd on {host.name} listens")
            yield Sshd(host, folder)


def why_not() -> str:
    """One sentence that says why this machine cannot have it; empty if it can."""
    if refused := namespaces.why_not():
        return refused
    missing = [package for program, package in (("sshd", "server"), ("ssh", "client")) if shutil.which(program) is None]
    if missing:
        names = ", ".join(f"openssh-{package}" for package in missing)
        return f"an ssh server needs Debian's packages {names}: install what apt-dev.txt names"
    return ""
