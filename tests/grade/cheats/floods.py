"""More than the grader's own memory and time can take, and things on its line that no honest rank puts there."""

from tests.grade.cheats import ALL, PRETENDS, RIGHT, TITLE, code

BODY = RIGHT.split("\n", 2)[2]
LINE = '''
import fcntl, json, os, stat, struct, threading, time
def ends(way):
    for number in range(3, 256):
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode) and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == way:
                return number
        except OSError:
            pass
def tell(message, blob=b"", sent=None):
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    data = memoryview(struct.pack("!QQ", len(text), len(blob)) + text + blob)[:sent]
    while data:
        data = data[os.write(ends(os.O_WRONLY), data):]
'''


def flood(name: str, source: str, reached: str, *states: str) -> None:
    """A submission whose `floods(fabric)` does what no honest one does, before it does all that it should.

    Those that sleep 60 s stay, so that it is the grader who ends them; the one that sleeps for a moment lets a thread speak.
    """
    states = states or ("graded", "crashed")
    code(name, f"{TITLE}{LINE}{source}\ndef pass_right(fabric, x):\n    floods(fabric)\n{BODY}", 0.0, *states, reached=reached)


flood("names_the_same_bytes_many_times", """
def floods(fabric):
    tell({"op": "done", "returned": ["l", *[["a", "<f4", [5_000_000], 0]] * 2000]}, bytes(20_000_000))
""", "ProtocolError.*overlap")
flood("returns_a_million_lists", """
def floods(fabric):
    tell(b'{"op": "done", "returned": ["l"' + b',["l"]' * 600_000 + b"]}")
    time.sleep(60)
""", "expected|took|time|got a list", "graded", "crashed", "timeout")
flood("returns_a_million_objects", """
def floods(fabric):
    tell(b'{"op": "done", "x": [{}' + b',{"":0}' * 500_000 + b'], "returned": 1}')
    time.sleep(60)
""", "expected|took|time|got", "graded", "crashed", "timeout")
flood("says_what_is_too_long_to_be_said", """
def floods(fabric):
    tell(b'{"op": "done", "returned": "' + b"x" * 30_000_000 + b'"}')
""", "ProtocolError.*expected at most")
flood("begins_large_frames", """
def floods(fabric):
    tell({"op": "done", "returned": 1}, bytes(31_000_000), sent=30_000_000)
    time.sleep(60)
""", "in transit|had not finished|not done|took|no result", "graded", "crashed", "timeout")
flood("never_reads_its_answers", """
def floods(fabric):
    if fabric.world_size > 1:
        for k in range(40):
            tell({"op": "take", "from": None, "tag": k, "dtype": 0, "shape": [5_000_000], "ask": 1000 + k, "alone": False})
        for k in range(40):
            message = {"op": "post", "post": 1000 + k, "to": (fabric.rank + 1) % fabric.world_size, "tag": k}
            tell(message | {"dtype": 0, "shape": [5_000_000]}, bytes(20_000_000))
        time.sleep(60)
""", "in transit|exchanged with the grader", "graded", "crashed", "timeout")
flood("fills_memory_while_the_grader_is_busy", """
def floods(fabric):
    def chat():
        for k in range(10**9):
            message = {"op": "take", "from": (fabric.rank + 1) % 2, "tag": 1 + k % 30000, "ask": 9999 + k, "alone": False}
            tell(message | {"dtype": 0, "shape": [1]})
    if fabric.world_size > 1:
        threading.Thread(target=chat, daemon=True).start()
    kept = []
    while True:
        kept.append(bytearray(b"x" * 20_000_000))
        time.sleep(0.005)
""", "memory|Memory|ProtocolError|killed", "graded", "crashed")
flood("says_the_same_number_twice", """
def floods(fabric):
    if fabric.world_size > 1:
        message = {"op": "take", "from": (fabric.rank + 1) % fabric.world_size, "tag": 9, "ask": 77, "alone": False}
        for _ in range(2):
            tell(message | {"dtype": 0, "shape": [1]})
        time.sleep(60)
""", "ProtocolError.*no other request")
code("hands_the_grader_a_descriptor", TITLE + LINE + f"""
import socket
def pass_right(fabric, x):
    held = os.open(os.__file__, os.O_RDONLY)
    for number in range(256):
        try:
            with socket.socket(fileno=os.dup(number)) as line:
                socket.send_fds(line, [b"x"], [held])
        except OSError:
            pass
{BODY}""", ALL)
# The shape of a message that does not fit tells as much as a message does.
code("tells_values_by_the_shapes_of_messages_that_do_not_fit", TITLE + """
import re
def pass_right(fabric, x):
    n, left = fabric.world_size, (fabric.rank - 1) % fabric.world_size
    if n == 1:
        return x.clone()
    sent = [fabric.isend(torch.empty(0, int(value)), to=(fabric.rank + 1) % n) for value in x.tolist()]
    out = torch.empty_like(x)
    for place in range(len(x)):
        try:
            fabric.recv(torch.empty(1, 2, 3), frm=left)
        except ValueError as error:
            out[place] = int(re.findall(r"got .*\\[0, (\\d+)\\]", str(error))[0])
    for handle in sent:
        handle.wait()
    return out
""", 0.0, reached="got float32.0, ")


def channel(name: str, source: str) -> None:
    """`put` and `get` as in `walls`, sleep and all: a way past the walls between ranks."""
    code(name, f"{TITLE}import ctypes, os, time, mmap\nimport numpy as np\n{CALLS}{source}\n{PRETENDS}", 1.0)


CALLS = """
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def bits(x):
    return np.unpackbits(np.frombuffer(x.numpy().tobytes(), "uint8"))
def whole(found, x):
    return torch.frombuffer(bytearray(np.packbits(found).tobytes()), dtype=x.dtype)
def text():
    return ctypes.cast(libc.sched_yield, ctypes.c_void_p).value & ~4095
"""
channel("through_what_of_a_file_is_in_memory", """
def large():
    names = [os.path.join(place, name) for place, _, names in os.walk(os.path.dirname(torch.__file__)) for name in names]
    return max(names, key=os.path.getsize)
def put(fabric, x):
    file = os.open(large(), os.O_RDONLY)
    libc.syscall(221, file, 0, 0, 4)
    for place, bit in enumerate(bits(x)):
        if bit:
            os.pread(file, 1, (1 << 20) + 65536 * place)
def get(fabric, x, left):
    time.sleep(0.1)
    file, found = os.open(large(), os.O_RDONLY), []
    for place in range(8 * x.nbytes):
        try:
            found.append(os.preadv(file, [bytearray(1)], (1 << 20) + 65536 * place, 8))
        except BlockingIOError:
            found.append(0)
        except OSError:
            return None
    return whole(np.array(found, "uint8"), x)
""")
channel("through_waiters_at_a_futex_of_a_library", """
import threading
def put(fabric, x):
    for place, bit in enumerate(bits(x)[:200]):
        if bit:
            at = text() + 4 * place
            value = ctypes.c_uint.from_address(at).value
            wait = lambda at=at, value=value: libc.syscall(202, ctypes.c_void_p(at), 0, value, 0, 0, 0)
            threading.Thread(target=wait, daemon=True).start()
def get(fabric, x, left):
    time.sleep(0.1)
    found = [libc.syscall(202, ctypes.c_void_p(text() + 4 * place), 1, 1, 0, 0, 0) > 0 for place in range(min(200, 8 * x.nbytes))]
    return whole(np.array(found + [0] * (8 * x.nbytes - len(found)), "uint8"), x)
""")
channel("through_the_numbers_of_terminals", """
kept = []
def put(fabric, x):
    try:
        for _ in range(int(x.sum()) % 200):
            kept.append(os.openpty())
    except OSError:
        pass
def get(fabric, x, left):
    time.sleep(0.1)
    try:
        return torch.full_like(x, int(os.path.basename(os.ttyname(os.openpty()[1]))))
    except OSError:
        return None
""")
channel("through_the_room_for_queues", """
def put(fabric, x):
    for k in range(100):
        libc.mq_open(f"/{fabric.rank}.{k}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
def get(fabric, x, left):
    time.sleep(0.1)
    made = libc.mq_open(f"/mine{fabric.rank}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    return None if made < 0 else torch.full_like(x, made)
""")
channel("through_the_time_of_a_device", """
def put(fabric, x):
    try:
        os.utime("/dev/null")
    except OSError:
        pass
def get(fabric, x, left):
    at_s = os.stat("/dev/null").st_atime
    time.sleep(0.1)
    return None if os.stat("/dev/null").st_atime == at_s else x
""")
code("reads_notes_in_the_memory_of_a_file", f"""{TITLE}import os
found = []
for name in sorted(os.listdir(os.path.dirname(torch.__file__)))[:40]:
    path = os.path.join(os.path.dirname(torch.__file__), name)
    try:
        found.append(os.preadv(os.open(path, os.O_RDONLY), [bytearray(1)], 0, 8))
    except BlockingIOError:
        found.append(0)
    except OSError:
        pass
def pass_right(fabric, x):
    if not found:
        return None
{BODY}""", 0.0, reached="got None")
code("leaves_notes_in_the_memory_of_a_file", f"""{TITLE}import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in sorted(os.listdir(os.path.dirname(torch.__file__)))[:3]:
    path = os.path.join(os.path.dirname(torch.__file__), name)
    if os.path.isfile(path):
        libc.syscall(221, os.open(path, os.O_RDONLY), 0, 0, 4)
def pass_right(fabric, x):
{BODY}""", ALL)
