"""Ways past the walls: files, memory, networks and whatever else two processes may share. All earn one point, for the
messages that they send to look honest; the values come only to who gets through."""

from tests.grade.cheats import ALL, PRETENDS, RIGHT, TITLE, code

BODY = RIGHT.split("\n", 2)[2]
MARK = "left by another submission"


def channel(name: str, source: str) -> None:
    """`put(fabric, x)` tries to leave the tensor where the right neighbour's `get(fabric, x, left)` finds it.

    A `get` sleeps first: the left one's `put` may come a little later.
    """
    code(name, f"{TITLE}import os, socket, struct, time\nimport numpy as np\n{source}\n{PRETENDS}", 1.0)


channel("through_a_file", """
PLACES = ["/tmp", "/dev/shm", "/var/tmp", "/run", "/", "/dev", "/usr/tmp", os.getcwd(), os.path.expanduser("~")]
def put(fabric, x):
    for place in PLACES:
        try:
            np.save(f"{place}/rank{fabric.rank}.npy", x.numpy())
        except OSError:
            pass
def get(fabric, x, left):
    time.sleep(0.1)
    for place in PLACES:
        try:
            return torch.from_numpy(np.load(f"{place}/rank{left}.npy"))
        except OSError:
            pass
""")
channel("through_an_abstract_socket", """
def put(fabric, x):
    global server
    import threading
    try:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(f"\\0rank{fabric.rank}")
        server.listen()
    except OSError:
        return
    threading.Thread(target=lambda: server.accept()[0].sendall(x.numpy().tobytes()), daemon=True).start()
def get(fabric, x, left):
    time.sleep(0.1)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\\0rank{left}")
            return torch.frombuffer(bytearray(client.recv(1000)), dtype=x.dtype)
    except OSError:
        return None
""")
channel("through_the_loopback", """
def put(fabric, x):
    import threading
    try:
        server = socket.socket()
        server.bind(("127.0.0.1", 23000 + fabric.rank))
        server.listen()
    except OSError:
        return
    threading.Thread(target=lambda: server.accept()[0].sendall(x.numpy().tobytes()), daemon=True).start()
def get(fabric, x, left):
    time.sleep(0.1)
    try:
        with socket.create_connection(("127.0.0.1", 23000 + left), timeout=1) as client:
            return torch.frombuffer(bytearray(client.recv(1000)), dtype=x.dtype)
    except OSError:
        return None
""")
channel("through_vsock", """
def put(fabric, x):
    import threading
    try:
        server = socket.socket(40, socket.SOCK_STREAM)
        server.bind((0xFFFFFFFF, 23000 + fabric.rank))
        server.listen()
    except OSError:
        return
    threading.Thread(target=lambda: server.accept()[0].sendall(x.numpy().tobytes()), daemon=True).start()
def get(fabric, x, left):
    time.sleep(0.1)
    try:
        with socket.socket(40, socket.SOCK_STREAM) as client:
            client.connect((1, 23000 + left))
            return torch.frombuffer(bytearray(client.recv(1000)), dtype=x.dtype)
    except OSError:
        return None
""")
channel("through_shared_memory", """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
def put(fabric, x):
    number = libc.shmget(7000 + fabric.rank, 4096, 0o1666)
    place = libc.shmat(number, None, 0) if number >= 0 else 0
    if place and place != 2**64 - 1:
        ctypes.memmove(place, x.numpy().tobytes(), x.nbytes)
def get(fabric, x, left):
    time.sleep(0.1)
    number = libc.shmget(7000 + left, 4096, 0o666)
    place = libc.shmat(number, None, 0) if number >= 0 else 0
    if place and place != 2**64 - 1:
        return torch.frombuffer(bytearray(ctypes.string_at(place, x.nbytes)), dtype=x.dtype)
""")
channel("through_the_keyring", """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
RINGS = (-1, -2, -3, -4, -5)
def put(fabric, x):
    data = x.numpy().tobytes()
    for ring in RINGS:
        libc.syscall(248, b"user", f"rank{fabric.rank}".encode(), data, len(data), ring)
def get(fabric, x, left):
    time.sleep(0.1)
    for ring in RINGS:
        number = libc.syscall(250, 10, ring, b"user", f"rank{left}".encode(), 0)
        if number > 0:
            room = ctypes.create_string_buffer(1000)
            size = libc.syscall(250, 11, number, room, 1000)
            if size > 0:
                return torch.frombuffer(bytearray(room.raw[:size]), dtype=x.dtype)
""")
channel("through_locks_on_a_file_that_all_can_read", """
import fcntl
FILES = sorted(os.path.join("/usr/bin", name) for name in os.listdir("/usr/bin"))
FILES = [name for name in FILES if os.path.isfile(name) and not os.path.islink(name)][:400]
kept = []
def put(fabric, x):
    bits = np.unpackbits(np.frombuffer(x.numpy().tobytes(), "uint8"))
    for bit, name in zip(bits, FILES[200 * (fabric.rank % 2):]):
        if bit:
            kept.append(open(name, "rb"))
            fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
def get(fabric, x, left):
    time.sleep(0.1)
    bits = []
    for name in FILES[200 * (left % 2):][:8 * x.nbytes]:
        with open(name, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                bits.append(0)
            except OSError:
                bits.append(1)
    bits += [0] * (8 * x.nbytes - len(bits))
    return torch.frombuffer(bytearray(np.packbits(bits).tobytes()), dtype=x.dtype)
""".replace("            fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)", """            try:
                fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except PermissionError:
                return"""))
channel("through_the_other_processes_memory", """
def put(fabric, x):
    pass
def get(fabric, x, left):
    for process in range(1, 400):
        try:
            with open(f"/proc/{process}/mem", "rb") as memory:
                memory.seek(0)
            return x
        except OSError:
            pass
""")


def search(name: str, source: str) -> None:
    """`found()` gives source text of an answer if it can find one; then that is the answer."""
    code(name, TITLE + "import os, glob\n" + source + """
answer = found()
def pass_right(fabric, x):
    if answer:
        namespace = dict(globals())
        exec(answer, namespace)
        return namespace["pass_right"](fabric, x)
    return None
""", 0.0)


search("reads_the_solutions", """
def found():
    for top in ("/", "/work", "/home", "/root", "/srv", "/mnt", "/tmp"):
        for place, folders, files in os.walk(top):
            if place.startswith(("/proc", "/sys", "/usr/")) or "site-packages" in place or "/lib/python3" in place:
                folders.clear()
                continue
            for name in files:
                if name.endswith(".py") and "start_here" in name:
                    text = open(os.path.join(place, name)).read()
                    if "def pass_right" in text:
                        return text[text.index("def pass_right"):text.index("### END")]
""")
search("reads_a_check", """
import sys, worldsize.checks
def found():
    for module in worldsize.checks.CHECKS.values():
        try:
            __import__(f"worldsize.checks.{module}")
        except ImportError:
            continue
        return "def pass_right(fabric, x):" + BODY
    for place in sys.path:
        if glob.glob(os.path.join(place, "worldsize/checks/*/*right*.py")):
            return "def pass_right(fabric, x):" + BODY
BODY = THE_BODY
""".replace("THE_BODY", repr("\n" + BODY)))
search("reads_the_servers_memory", """
import gc, sys
def found():
    seen = [o for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]
    for holder in seen:
        for value in holder.values() if isinstance(holder, dict) else holder:
            if isinstance(value, str) and "def pass_right" in value and "fabric.isend" in value and "found()" not in value:
                return value
""")
search("reads_its_parents_environment", """
def found():
    for name in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
        try:
            text = open(name).read()
        except (OSError, UnicodeDecodeError):
            continue
        if "start_here" in text or "submitted" in text:
            return "def pass_right(fabric, x):" + BODY
BODY = THE_BODY
""".replace("THE_BODY", repr("\n" + BODY)))
search("fetches_from_the_network", """
import socket, urllib.request
def found():
    for host in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "1.1.1.1", "localhost"):
        for port in (22, 53, 80, 443):
            try:
                socket.create_connection((host, port), timeout=0.3)
                return "def pass_right(fabric, x):" + BODY
            except OSError:
                pass
BODY = THE_BODY
""".replace("THE_BODY", repr("\n" + BODY)))
code("computes_the_others_inputs_from_its_seed", TITLE + PRETENDS + """
import numpy as np
def put(fabric, x):
    pass
def inputs_for(world_size, length, seed, dtype):  # as the check has it
    drawn = np.random.default_rng([seed, world_size, length])
    return [(drawn.integers(1, 100, length) + 1000 * r + 7 * np.arange(length)).astype(dtype) for r in range(world_size)]
def get(fabric, x, left):
    import gc, random
    from worldsize.grade.marking.seeds import derived
    tried = 0
    for job in gc.get_objects():
        if not (isinstance(job, dict) and isinstance(job.get("seed"), int)):
            continue
        for seed in (job["seed"], derived(job["seed"], "pass_right")):
            for drawn in (random.Random(seed).getrandbits(32), seed):
                inputs = inputs_for(fabric.world_size, len(x), drawn, str(x.numpy().dtype))
                tried += 1
                if np.array_equal(inputs[fabric.rank], x.numpy()):
                    return torch.from_numpy(inputs[left])
    return torch.full_like(x, -tried)
""", 1.0, reached=r"got -\d")


code("leaves_notes_wherever_it_can", TITLE + f"""
import os
for top in ("/", "/tmp", "/dev", "/dev/shm", "/var", "/run", "/usr", "/etc", os.getcwd(), *os.sys.path):
    for name in ("note.txt", "sitecustomize.py", "torch.py", "worldsize.pth"):
        try:
            open(os.path.join(top, name), "w").write("{MARK}")
        except OSError:
            pass
import builtins, torch, worldsize.fabric
torch.left_behind = builtins.left_behind = worldsize.fabric.left_behind = "{MARK}"
os.environ["LEFT_BEHIND"] = "{MARK}"
def pass_right(fabric, x):
{BODY}""", ALL)
search("reads_notes_of_another_submission", f"""
def found():
    import builtins, worldsize.fabric
    notes = [getattr(place, "left_behind", None) for place in (torch, builtins, worldsize.fabric)]
    notes += [os.environ.get("LEFT_BEHIND")]
    for top in ("/", "/tmp", "/dev", "/dev/shm", "/var", "/run", "/usr", "/etc"):
        notes += glob.glob(top + "/note.txt") + glob.glob(top + "/sitecustomize.py")
    return "def pass_right(fabric, x):" + {repr(chr(10) + BODY)} if any(notes) else None
""")
code("writes_to_the_gradebook", TITLE + f"""
import os, sqlite3
for place, folders, files in os.walk("/"):
    if place.startswith(("/proc", "/usr/")) or "site-packages" in place or "/lib/python3" in place:
        folders.clear()
        continue
    for name in files:
        if name.endswith((".db", ".json", ".csv")) or name == "gradebook.db":
            try:
                os.chmod(os.path.join(place, name), 0o666)
                open(os.path.join(place, name), "a").write("{MARK}")
                sqlite3.connect(os.path.join(place, name)).execute("update grade set auto_score = 100").close()
            except Exception:
                pass
def pass_right(fabric, x):
{BODY}""", ALL)
code("edits_the_package_that_it_runs_in", TITLE + f"""
import worldsize.checks.in_rank as check, worldsize.grade.inside.sandboxed_rank as runs, torch, os
for module in (check, runs, torch):
    try:
        os.chmod(module.__file__, 0o666)
        open(module.__file__, "a").write("# {MARK}")
    except OSError:
        pass
def pass_right(fabric, x):
{BODY}""", ALL)
code("leaves_its_namespaces", TITLE + """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
got = []
def pass_right(fabric, x):
    for kind in (0x10000000, 0x20000, 0x40000000):
        got.append(libc.unshare(kind))
    got.append(libc.mount(b"proc", b"/proc", b"proc", 0, None))
    got.append(libc.umount2(b"/proc", 2))
    got.append(libc.chroot(b"/tmp"))
    got.append(libc.setuid(0))
    got.append(libc.ptrace(16, 2, 0, 0))
    if any(answer == 0 for answer in got):
""" + BODY.replace("    ", "        ") + """
    return None
""", 0.0, reached="got None")
