# %% [markdown]
# # Lab 15. Failures and elasticity
#
# **After this lab you are able to** save a run so that no kill can tear its file; go on after a failure with the same bits;
# say how often to save, and what share of a cluster's day is work; go on with fewer ranks, or without a restart; find a rank
# that hangs, lags or differs. Ranks are killed here, and a thousand saves.
#
# **Minutes:** 150 (two sittings: 70 up to “Saved by four, loaded by two”, then 80) · **Points:** 6 · **Prerequisites:** Lab 04
# (replicas), Lab 06 (all-reduce). Labs 10 and 12 help.

# %% [markdown]
# ![Four hours, two kills: how much work is kept? A save every 8 steps and a save every 24 steps tie …](../labs/covers/15.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

import io
import json
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import redirect_stdout
from datetime import timedelta
from inspect import signature
from itertools import groupby, pairwise
from pathlib import Path

# %%
# Set-up: PyTorch, and what the course brings
import cloudpickle
import torch
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.nn import functional as F

from worldsize.formulas import goodput as formulas
from worldsize.launch import unobserved
from worldsize.pytorch import elastic_agents
from worldsize.pytorch.live_cluster import DayPlan, live_day, undisturbed
from worldsize.pytorch.models import mlp, tensors

# %% tags=["parameters"]
kills = 1000
steps = 24
every = 5
dies_at = 13
day_s = 24.0
cluster = 8
save_minutes = 2.0
first_seed = 1000
lucky_days = 200

# %%
lab, check = open_lab("15")
room = tempfile.TemporaryDirectory(prefix="worldsize-lab-15-")
folder = Path(room.name)

# %% [markdown]
# ## How often does something break?
#
# One computer fails once every few months. A run on 2,048 of them stops whenever *any* of them fails, because all ranks wait
# for each other in every step. Meta found 6.50 failures in 1,000 node-days (Kokolis and others, 2025; a **node** is a
# computer, here with 8 GPUs; a node-day is one node for a day). The mean time between two failures of a job is its **MTBF**.

# %%
gpus, rate = 16_384, 6.50
asks = f"A job on {gpus:,} GPUs, {rate} failures in 1,000 node-days"
lab.predict("mtbf", f"{asks}: how many hours between two failures?", "hours")

# %%
mtbf_hours = formulas.mtbf_hours(gpus, rate)
lab.measure("mtbf", mtbf_hours)
for count in (1024, gpus, 131_072):
    hours = formulas.mtbf_hours(count, rate)
    daily = count // 8 * rate / 1000
    print(f"{count:,} GPUs: {daily:.2f} failures a day, one in {hours:.2f} hours")
print(f"Llama 3 on {gpus:,}: 419 unplanned stops in 54 days, one in {54 * 24 / 419:.2f} hours")
more = formulas.mtbf_hours(1024, rate) / 7.9
print(f"measured on jobs of 1,024: one in 7.9 hours, {more:.1f} times as often as projected")

# %% [markdown]
# The paper projects 1.8 hours for 16,384 GPUs and 0.23 for 131,072. The Llama 3 line is from another cluster: that run (2024,
# section 3.3.4) had 466 interruptions in 54 days, 47 of them planned; faulty GPUs caused 148 of the others (table 5). Still,
# more than 90 % of the time was training. How does one get there?

# %% [markdown]
# **In one sentence:** the paper measured more failures of jobs on 1,024 GPUs than it projects. What may have ended them?
#
# <details><summary>Compare</summary>The projection assumes that nodes are equally good and failures independent. But a job of
# many nodes is only as good as its worst one, a broken network or file system stops all nodes at once, and what broke once may
# break again at the next start. So a projection from a mean rate is a guess: measure.</details>

# %% [markdown]
# ## A file that a kill cannot tear
#
# A **checkpoint** is a file from which a run can go on. Saving takes a while, and a rank can be killed in the middle of it.
# Here is the save that one writes first, over the old file. What is in the file after a kill?

# %%
# Set-up
def overwrite(path, data):
    """The bytes `data` into the file `path`, over what was in it."""
    with open(path, "wb") as file:
        file.write(data)

# %% [markdown]
# Each save below runs in a process of its own, which is killed. Every second one dies at a random byte: `RLIMIT_FSIZE` limits
# the files that a process writes, and Linux kills a process that writes further. The others die at a random call or return of
# a function; a few only after the save has returned.
#
# Then the file is read. It holds the old checkpoint whole, or the new one whole; or it is **torn**. If a save has returned and
# the new checkpoint is not there, it is **lost**.

# %%
# Helper: a save that dies at one of its calls
def save_and_die(save, path, data, at=None):
    """Save, and end with SIGKILL at call or return number `at`. Returns how many there were."""
    seen = 0

    def look(frame, event, argument):
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)
    save(path, data)
    sys.setprofile(None)
    return seen

# %%
# Helper: saves that are killed, each in a process of its own
def killed_saves(save, kills, path, size=10_000):
    """How many files are old, new or torn after `kills` killed saves; lost: a save had returned, and its file is not new."""
    found, returned = Counter(old=0, new=0, torn=0, lost=0), mmap.mmap(-1, 1)  # memory that parent and child share
    calls = save_and_die(save, path, bytes(size))
    for number in range(1, kills + 1):
        old, new = random.randbytes(size), random.randbytes(size)
        path.write_bytes(old)
        byte, at = (random.randrange(size), None) if number % 2 else (size, random.randint(1, calls * 5 // 4))
        returned[0] = 0
        if os.fork() == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_FSIZE, (byte, byte))
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would turn it into an OSError
                save_and_die(save, path, new, at)
                returned[0] = 1
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        left = path.read_bytes() if path.exists() else b""
        ended = "lost" if returned[0] else "old" if left == old else "torn"
        found["new" if left == new else ended] += 1
        if number % 250 == 0 or number == kills:
            others = len(list(path.parent.iterdir())) - path.exists()
            print(json.dumps({"kills": number, **found, "other files": others}), flush=True)

# %%
# Helper: the same in a small process, which forks faster than one that has imported PyTorch
def kill_them(save, kills):
    """What became of `kills` killed saves, a dict."""
    own = Path(tempfile.mkdtemp(dir=folder))
    save(own / "state", b"first")
    (folder / "saves.pkl").write_bytes(cloudpickle.dumps((killed_saves, save, kills, own / "state")))
    (folder / "kill.py").write_text("import pickle; fn, *rest = pickle.load(open('saves.pkl', 'rb')); fn(*rest)")
    said = terminal(sys.executable, "kill.py", folder=folder, timeout_s=120)
    return json.loads(said.splitlines()[-1])

# %%
asks = "100 saves of 10 kB over the old file, 50 killed at a random byte, 50 at a random call"
lab.predict("torn", f"{asks}: about how many files are torn?", "files")

# %%
lab.measure("torn", kill_them(overwrite, 100)["torn"])

# %% [markdown]
# Once the file is opened, the old checkpoint is gone; the new one is there only with its last byte. The way out is a rename:
# on one file system `os.replace(a, b)` gives the file a the name b in a single step. Whoever opens b finds the old file or the
# new one. So write under another name in the same folder, then rename.

# %% [markdown]
# At first a written file lies in the operating system's memory. A kill does not touch it there; but if the machine loses
# power, the new *name* may be on the disk without the *data*. `os.fsync(number)` waits until the disk has the data; an open
# file's number is its `fileno()`. First `file.flush()` empties Python's own buffer.

# %% [markdown]
# The new *name* is an entry in the **folder**, which must be synced too. So after the rename get the folder's number with
# `os.open(folder, os.O_RDONLY)`, `os.fsync` it and `os.close` it. Without this a power cut may bring back the old file, whole,
# though the save had returned. No kill shows what a sync changes. So the check says without points whether you sync the file
# in time, and does not ask whether you sync the folder. Do both all the same.

# %% [markdown]
# Two more demands. Rank 0 saves `state.rank0` while rank 1 saves `state.rank1` beside it, and maybe another job `model.rank0`.
# And what killed saves leave must not pile up, or a thousand failures fill the disk: a save that returns leaves only the new
# file. If the disk *is* full, a write raises OSError: let the caller see it, as an OSError. The old file stays.
#
# <details><summary>Hint 1</summary>The name of the temporary file: every rank has its own, and always the same one. Then no
# two ranks meet, and the next save overwrites what a killed one left. Make it from the whole <code>path.name</code>:
# <code>path.with_suffix(".tmp")</code> is <code>state.tmp</code> for state.rank0 and for state.rank1.</details>
# <details><summary>Hint 2</summary>Five steps: open, write, flush, fsync, replace. The order is everything. The sixth is the
# folder's fsync.</details>

# %% tags=["exercise:save_atomically"]
# Exercise 15.1: a save that cannot be torn
def save_atomically(path, data):
    """Put data, bytes, into the file `path`, a pathlib.Path: a kill at any moment leaves the
    old file or the new, whole.

    The data are on disk before they get the name; an OSError goes to the caller. What a killed
    save left is gone after the next save. Other files are saved in the folder at the same time
    (state.rank1, model.rank0): they must not meet.
    """
    ### BEGIN SOLUTION
    part = path.with_name(path.name + ".tmp")
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    entries = os.open(path.parent, os.O_RDONLY)
    os.fsync(entries)  # the name, too
    os.close(entries)
    ### END SOLUTION

# %% tags=["check:save_atomically"] points=1.5
check.save_atomically(save_atomically)

# %%
try:
    found = kill_them(save_atomically, kills)
    print(f"{found['kills']:,} kills: {found['torn']} torn files, {found['lost']} lost saves")
    print(f"other files that are left: {found['other files']}")
except NotYet as stub:
    print("not yet:", stub)

# %% [markdown]
# **In one sentence:** why is a rename safe, and a copy of the finished temporary file not?
#
# <details><summary>Compare</summary>A rename changes one entry of the folder, in one step. A copy writes all bytes once more,
# over the old file: it can be torn there. (Try it: <code>kill_them(your_copy, 100)</code>.)</details>

# %% [markdown]
# ## What has to be in a checkpoint?
#
# The weights, and what else? Below is a small real training run on two ranks. Its momentum is a memory of earlier gradients,
# its learning rate follows a schedule, each rank adds noise of its own to its images, and each step takes the next batch. When
# a job starts again, all of that is made afresh, with other weights and random numbers.

# %%
# Helper: a training on every rank
class Training:
    """A rank's part of a training run: a model, an optimizer, a schedule, and a generator for this rank's noise."""

    def __init__(self, images, labels, batch=32):
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.data = images.flatten(1).split(batch), labels.split(batch)
        self.batches = len(images) // (batch * self.world_size)
        self.model = mlp([784, 32, 10])
        for p in self.model.parameters():
            dist.broadcast(p.data, src=0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=4, gamma=0.8)
        self.generator = Generator()
        self.generator.manual_seed(random.getrandbits(30))

    def step(self, epoch, batch):
        order = torch.randperm(self.batches, generator=torch.Generator().manual_seed(epoch))
        x, y = (part[order[batch] * self.world_size + self.rank] for part in self.data)
        loss = F.cross_entropy(self.model(x + 0.3 * torch.randn(x.shape, generator=self.generator)), y)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world_size
        self.optimizer.step()
        self.schedule.step()
        report(step=epoch * self.batches + batch + 1, loss=loss.item())

# %%
# Helper: what else the training has
class Generator(torch.Generator):
    """A generator of random numbers: a class of our own, so that it can be changed below."""

    def set_state(self, state):
        super().set_state(state.clone())  # given a row of a larger tensor, PyTorch would read past the row

def gather(tensor):
    """The tensors of all ranks, a list; all ranks call it together."""
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return found

def gather_values(value):
    """The values of all ranks, of any kind, a list; all ranks call it together."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found

# %%
Training.gather = staticmethod(gather_values)
images, labels, *_ = tensors(data.load("fashion-mnist"), 640, 1)

# %% [markdown]
# The training is over after `steps` steps. You write the loop: restore what `load()` gives, train on, save after every `every`
# steps, counted from the very first one, and after the last. A job that starts again may get another `every`.
#
# **Every rank** calls `load()`, and all get the same checkpoint; at the first start it is None. `save(checkpoint)` is called by
# **rank 0 alone**, for there is one file. A checkpoint is any object; when `save` returns it is written. Yet each rank
# has a generator of its own: how does its state get into the file?

# %% [markdown]
# `training.model`, `training.optimizer` and `training.schedule` have `state_dict()` and `load_state_dict(state)`.
# `training.generator` has `get_state()`, a tensor, and `set_state(state)`. `training.gather(value)` returns a list: the values
# that all ranks gave, in the order of the ranks. Use `gather`, not `dist`: the check has no process group. `training.rank` is
# a rank's number. An epoch has `training.batches` batches, numbered from 0, like the epochs.
#
# <details><summary>Hint 1</summary>All ranks come to <code>training.gather(…)</code> together, even those that do not save.
# When the checkpoint is loaded, each restores its own entry of the list.</details>
# <details><summary>Hint 2</summary>One number is enough for the place in the data: how many steps are done.
# <code>divmod</code> turns it into epoch and batch.</details>

# %% tags=["exercise:train_to_the_end"]
# Exercise 15.2: go on with the same bits
def train_to_the_end(training, steps, every, load, save):
    """Train until `steps` steps are done, with a checkpoint after every `every` steps and after
    the last one.

    Ended at any step and started again, it arrives at the same bits as a training that was
    never ended. Returns the model's state_dict(). training.step(epoch, batch) is one step; all
    ranks run this function.
    """
    ### BEGIN SOLUTION
    kept, done = load(), 0
    if kept is not None:
        done = kept["done"]
        for part in ("model", "optimizer", "schedule"):
            getattr(training, part).load_state_dict(kept[part])
        training.generator.set_state(kept["generators"][training.rank])

    while done < steps:
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done == steps:
            generators = training.gather(training.generator.get_state())
            if training.rank == 0:
                states = {
                    part: getattr(training, part).state_dict()
                    for part in ("model", "optimizer", "schedule")
                }
                save({"done": done, "generators": generators, **states})
    return training.model.state_dict()
    ### END SOLUTION

# %% tags=["check:train_to_the_end"] points=1.5
check.train_to_the_end(train_to_the_end)

# %% [markdown]
# Now kill it. `job` below makes a training and hands it to your function; `dies_at` makes rank 1 kill itself after that many
# steps, with SIGKILL, the signal that no process can refuse. The launcher sees a dead rank, and ends the other. Then the job
# is started again. Your `save_atomically` writes its file.

# %%
# Helper: a checkpoint as bytes, and bytes as a file
def packed(checkpoint):
    file = io.BytesIO()
    torch.save(checkpoint, file)
    return file.getvalue()

def keep(path, data):
    """With your save_atomically; until that is written, over the old file."""
    try:
        save_atomically(path, data)
    except NotYet:
        overwrite(path, data)

# %%
# Helper: what every rank runs
def job(path, dies_at=None, forgets=""):
    dist.init_process_group("gloo")
    training = Training(images, labels)
    if forgets:
        own = getattr(training, forgets)
        own.__class__ = type("Deaf", (type(own),), dict.fromkeys(("load_state_dict", "set_state"), lambda self, state: None))

    def step(epoch, batch, real=training.step):
        if (training.rank, epoch * training.batches + batch) == (1, dies_at):
            os.kill(os.getpid(), signal.SIGKILL)
        real(epoch, batch)

    def save(checkpoint):
        keep(path, packed(checkpoint))

    def load():
        return torch.load(path, weights_only=False) if path.exists() else None

    training.step = step
    return train_to_the_end(training, steps, every, load, save)

# %%
# Helper: files of an earlier run of a cell, and what a killed job has left
def fresh(*names):
    """Remove these files."""
    for name in names:
        (folder / name).unlink(missing_ok=True)

def left_behind(name):
    """A copy of the killed job's checkpoint."""
    fresh(name)
    if (folder / "killed.pt").exists():
        shutil.copy(folder / "killed.pt", folder / name)
    return folder / name

# %%
lab.predict("twice", f"A save every {every} steps, a kill when {dies_at} are done: how many steps are done twice?", "steps")

# %%
fresh("quiet.pt", "killed.pt")
quiet = launch(job, 2, args=(folder / "quiet.pt",), seed=0)
try:
    launch(job, 2, args=(folder / "killed.pt", dies_at), seed=0)
except RankFailed as failed:
    print(str(failed).splitlines()[0])

# %%
# Helper: how far apart two runs are
def largest_difference(one, other):
    """The largest difference of a weight between two runs, on rank 0."""
    return max(float((one[0][name] - other[0][name]).abs().max()) for name in one[0])

# %%
again = launch(job, 2, args=(left_behind("all.pt"),), seed=1)
if again.state == "done":
    first = int(again.reports[0][0]["step"])
    lab.measure("twice", dies_at - first + 1)
    print(f"started again, it began with step {first} of {steps}")
    far = largest_difference(again, quiet)
    print("largest difference of a weight from the undisturbed run:", far)

# %% [markdown]
# Below, the same killed job is resumed three more times. Each time one part of the checkpoint is forgotten: its
# `load_state_dict`, or `set_state`, does nothing. In PyTorch the current learning rate is part of the *optimizer's* state,
# beside the momentum; the schedule's state says how many steps it has seen. **Before you look:** which forgotten part changes
# the losses most?

# %%
# Helper: a rank's losses
def losses(run, since):
    return [row["loss"] for row in run.reports[0] if row["step"] > since]

# %%
last_saved = dies_at // every * every
taken_up = {"all taken up": again}
for part in ("generator", "schedule", "optimizer"):
    print(f"from the checkpoint, without the {part} …", flush=True)
    with unobserved():  # no picture of this launch
        rest = left_behind(f"{part}.pt")
        taken_up[f"without the {part}"] = launch(job, 2, args=(rest, None, part), seed=2)
off = dict.fromkeys(taken_up)
if quiet.state == "done":
    for name, run in taken_up.items():
        pairs = zip(losses(run, last_saved), losses(quiet, last_saved))
        off[name] = [abs(a - b) for a, b in pairs]
figures.histories(
    off,
    "How far is the loss from the undisturbed run's, when a part of the checkpoint is"
    " forgotten?",
    y="difference", x="step after the checkpoint", log=True, mean=True,
)

# %% [markdown]
# No error is raised: the run goes on, but no longer as the training that was killed.
#
# **In one sentence:** why is one generator, rank 0's, not enough for all?
#
# <details><summary>Compare</summary>After the restart all ranks would add the same noise (or drop the same units), where
# before each had its own: a different training.</details>

# %% [markdown]
# ## Who starts the ranks again?
#
# So far you did. On a machine, `torchrun` does: `--max-restarts 2` lets it restart all ranks twice. When a rank dies, torchrun
# ends the others: in the middle of an all-reduce nobody can go on alone. The script below saves after every step; in its first
# life rank 1 kills itself after 5 steps. (`TORCHELASTIC_RESTART_COUNT` numbers the lives, from 0.)
#
# `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` gives each life a rendezvous of its own. Without it a new rank may read the address
# that a dead one left, and wait for it ([PyTorch issue 135712](https://github.com/pytorch/pytorch/issues/135712)).

# %%
script = """\
import os, signal, time
import torch
import torch.distributed as dist

def say(words):
    os.write(1, f"{words}\\n".encode())  # in one piece: all ranks share a terminal

dist.init_process_group("gloo")
rank, life = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
done, total = torch.load("state.pt") if os.path.exists("state.pt") else (0, torch.zeros(1))
say(f"life {life}, rank {rank}: goes on after {done} steps at {time.monotonic():.2f} s")
while done < 8:
    if (life, rank, done) == ("0", 1, 5):
        say(f"rank {rank} is killed at {time.monotonic():.2f} s")
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.full((1,), float(done + rank))
    dist.all_reduce(x)
    total, done = total + x, done + 1
    if rank == 0:  # the next two lines without fsync: processes are killed here, no machine
        torch.save((done, total), "state.tmp")
        os.replace("state.tmp", "state.pt")
    dist.barrier()
say(f"life {life}, rank {rank}: {done} steps, total {total.item():g}")
dist.destroy_process_group()
"""

# %%
lab.predict("again", "torchrun: how many seconds from the kill until a rank goes on in its next life?", "s")

# %%
command = "torchrun", "--standalone", "--nproc-per-node", 2, "--max-restarts", 2, "train.py"
print("$", *command, flush=True)
(folder / "train.py").write_text(script)
fresh("state.pt")
with redirect_stdout(io.StringIO()):  # torchrun itself reports the failure over many lines
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    said = terminal(*command, folder=folder, timeout_s=120, env=env)
own = [line for line in said.splitlines() if line.startswith(("life", "rank"))]
print(*own, sep="\n")
moments = [float(line.split()[-2]) for line in own if line.endswith(" s")]
killed = next(float(line.split()[-2]) for line in own if "is killed" in line)
lab.measure("again", min(moment for moment in moments if moment > killed) - killed)

# %% [markdown]
# In that time Python starts and imports PyTorch once more. On a cluster a restart takes minutes: a machine must be found,
# thousands of connections made, the checkpoint read.

# %% [markdown]
# ## Three go on, a fourth comes back (optional)
#
# A rank may be lost with its whole machine. Every machine runs one torchrun, its **agent**. `--nnodes 3:4` means three or four
# of them. The agents meet in a store: the **rendezvous**. Each sends heartbeats there; one that misses several is out. If
# three are left, they wait a little for a fourth (the **last call**), then start their ranks as a group of three.
#
# An agent that comes later waits there. The others see it, end their ranks, and all four begin again from the checkpoint.

# %%
train_in_groups = """\
import json, os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world, node = dist.get_rank(), dist.get_world_size(), int(os.environ["NODE"])
done = torch.load("group.pt") if os.path.exists("group.pt") else 0
last = max(30, done + 10)
while world < 4 or done < last:  # until all four have done some steps at the end
    time.sleep(0.05)  # a step's work
    dist.all_reduce(torch.ones(1))
    done += 1
    row = {"s": time.monotonic(), "step": done, "world": world, "rank": rank, "node": node}
    os.write(1, (json.dumps(row) + "\\n").encode())
    if rank == 0 and done % 5 == 0:
        torch.save(done, "group.tmp")
        os.replace("group.tmp", "group.pt")
dist.destroy_process_group()
"""

# %% [markdown]
# Four agents run on this machine, forks of one process that has imported PyTorch (`--start-method fork`), each with one rank.
# After 12 steps, agent 2 and its rank are killed. When three ranks have done 12 more, the agent is started again. Only ranks
# that fail count against `--max-restarts`; an agent that comes back does not.
#
# `--rdzv-conf` makes the waits short: an agent sends a heartbeat every second and is out after three misses, and the last call
# lasts one second.

# %%
waits = "is_host=0,keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=1"
command = ["--nnodes", "3:4", "--rdzv-backend", "c10d", "--rdzv-id", "lab-15"]
command += ["--rdzv-conf", waits, "--max-restarts", 3]
command += ["--run-path", "--start-method", "fork", "train_in_groups.py"]
asks = "Four agents, one is killed: how many seconds until three ranks do their next step?"
lab.predict("regroup", asks, "s")

# %%
# Helper: torchrun's agents, one of which is killed and comes back
def four_agents(kill_at=12, back_after=12, limit_s=90):
    """What the ranks and agents noted, rows in order of time."""
    (folder / "agents.py").write_text(elastic_agents.SCRIPT)
    (folder / "train_in_groups.py").write_text(train_in_groups)
    fresh("group.pt")
    terminal("python", "agents.py", kill_at, back_after, limit_s, *command, folder=folder, timeout_s=limit_s + 30)
    noted = [json.loads(line) for line in (folder / elastic_agents.ROWS).read_text().splitlines()]
    return sorted(noted, key=lambda row: row["s"])

def moment(rows, event):
    """When the last event of this name was, in seconds; None if there is none."""
    return next((row["s"] for row in reversed(rows) if row.get("event") == event), None)

# %%
# Helper: how long all stand still, in words
def pauses(groups):
    """Measure from a group's last step to the next one's first; None unless groups of 4, 3 and 4 follow each other."""
    if [group[0]["world"] for group in groups] != [4, 3, 4]:
        return None
    idle_s = [after[0]["s"] - before[-1]["s"] for before, after in pairwise(groups)]
    return f"all, for {idle_s[0]:.1f} s after the kill, {idle_s[1]:.1f} s at the return"

# %%
noted = four_agents()
killed_s, back_s = moment(noted, "is killed"), moment(noted, "starts")
stepped = [row for row in noted if "step" in row]
groups = [list(rows) for _, rows in groupby(stepped, key=lambda row: row["world"])][-3:]
if [group[0]["world"] for group in groups] == [4, 3, 4]:
    lab.measure("regroup", groups[1][0]["s"] - killed_s)
    for before, group in pairwise(groups):
        world, first = group[0]["world"], group[0]["step"]
        twice = max(row["step"] for row in before) - first + 1
        print(f"a group of {world} goes on with step {first}; steps done twice: {twice}")
    until_s = groups[2][0]["s"] - back_s
    print(f"from the start of agent 2 until its rank trains: {until_s:.1f} s")
else:
    print("The agents were not done in time.")

# %%
since = stepped[0]["s"] if stepped else 0.0
rows = {
    f"agent {node}": [row["s"] - since for row in stepped if row["node"] == node]
    for node in range(4)
}
events = {"agent 2 is killed": killed_s, "agent 2 starts again": back_s if killed_s else None}
events = {what: at - since for what, at in events.items() if at is not None and at > since}
asks = "An agent of four is killed and comes back: who does nothing, and when?"
figures.lanes(rows, events, figures.answered(asks, pauses(groups)), "a tick is a step", "step")

# %%
own = signature(dynamic_rendezvous.DynamicRendezvousHandler.from_backend).parameters
beat_s, missed = own["keep_alive_interval"].default, own["keep_alive_max_attempt"].default
last_call_s = dynamic_rendezvous.RendezvousTimeout().last_call.total_seconds()
beat = f"a heartbeat every {beat_s} s, out after {missed} missed"
print(f"torchrun's own values: {beat}, a last call of {last_call_s:g} s")
print(f"with these the first pause is about {beat_s * missed + last_call_s:g} s")

# %% [markdown]
# **In one sentence:** what speaks against a last call of one second on a cluster?
#
# <details><summary>Compare</summary>It closes the group before the fourth machine is up. That one comes a moment later, so all
# ranks are ended and restarted from the checkpoint once more.</details>
#
# Further below you write what the *training* must do with another number of ranks.

# %% [markdown]
# ## Saved by four, loaded by two
#
# With sharded weights (Lab 12) no rank has the whole model. Gathering it on rank 0 needs memory that nobody has. PyTorch's
# **distributed checkpoint** lets every rank write its own shard at the same time, and notes what lies where. So another number
# of ranks can load it: each reads the pieces that its own shard needs.

# %%
def whole():
    return torch.arange(24 * 5.0).reshape(24, 5)

def sharded(path, save):
    """Save a cut tensor, or load it; returns this rank's shard's shape and if it is right."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weight = distribute_tensor(whole() if save else torch.zeros(24, 5), mesh, [Shard(0)])
    state = {"weight": weight, "done": 7 if save else 0}
    dcp.save(state, checkpoint_id=path) if save else dcp.load(state, checkpoint_id=path)
    own = state["weight"].to_local()
    right = torch.equal(own, whole().tensor_split(dist.get_world_size())[dist.get_rank()])
    return tuple(own.shape), state["done"], right

# %%
lab.predict("files", "4 ranks save one cut tensor: how many files does the checkpoint have?", "files")

# %%
shutil.rmtree(folder / "sharded", ignore_errors=True)
saved = launch(sharded, 4, args=(folder / "sharded", True), device="cpu")
for file in sorted((folder / "sharded").iterdir()):
    print(f"{file.name}: {file.stat().st_size:,} bytes")
lab.measure("files", len(list((folder / "sharded").iterdir())))
loaded = launch(sharded, 2, args=(folder / "sharded", False), device="cpu")
for rank, (shape, done, right) in enumerate(loaded.results):
    shard = f"a shard of {shape[0]} x {shape[1]}, steps done {done}"
    print(f"rank {rank} of 2: {shard}, the numbers are right: {right}")

# %% [markdown]
# A model and its optimizer are saved the same way, with what `get_state_dict(model, optimizer)` from
# `torch.distributed.checkpoint.state_dict` returns.

# %% [markdown]
# ## Saving while training goes on (optional)
#
# `dcp.save` returns when all is written. `dcp.async_save` copies the state to memory (**staging**) and returns; a thread
# writes the copy while training goes on. Below, every tenth step saves 8 MB a rank. The slow disk is faked, so that it is the
# same everywhere: its writer waits `write_s` seconds, then writes. A step's work is a wait too.
#
# The ranks use collectives to agree on a save. For these `async_save` gets a group of its own: in the training's group a
# save's gather may meet a gradient's all-reduce, and then both hang.

# %%
# Helper: a disk that takes its time
def played_disk(path, write_s):
    """PyTorch's file writer, which waits first."""
    import torch.distributed.checkpoint as dcp

    class PlayedDisk(dcp.FileSystemWriter):
        def write_data(self, plan, planner):
            time.sleep(write_s)
            return super().write_data(plan, planner)

    return PlayedDisk(path)

# %%
def saves(path, beside, write_s=0.25, saves_at=(10, 20, 30)):
    """Train, and save beside the steps or between: ms of steps and stalls, the first save."""
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo")
    group, pending, steps_ms, stalls_ms = dist.new_group(), None, [], []
    state = {f"rank {dist.get_rank()}, part {k}": torch.zeros(1_000_000) for k in range(2)}
    for step in range(1, saves_at[-1] + 1):
        begin_s = time.monotonic()
        time.sleep(0.04)  # a step's work
        dist.all_reduce(torch.ones(1000))
        for weight in state.values():
            weight += 1  # in place, as an optimizer does
        worked_s = time.monotonic()
        if step in saves_at:
            if pending is not None:
                pending.result()  # the save before must be complete
            save = dcp.async_save if beside else dcp.save
            disk = played_disk(path / str(step), write_s)
            pending = save(state, storage_writer=disk, process_group=group)
            pending = pending if beside else None
            stalls_ms.append(1e3 * (time.monotonic() - worked_s))
        steps_ms.append(1e3 * (time.monotonic() - begin_s))
    if pending is not None:
        pending.result()
    dcp.load(state, checkpoint_id=path / str(saves_at[0]), process_group=group)
    saved = {value for weight in state.values() for value in weight.unique().tolist()}
    return steps_ms, stalls_ms, saved

# %%
lab.predict("stall", "With async_save training stands still: for what share of the time that dcp.save takes?", "%")

# %%
ways = {"dcp.save": False, "dcp.async_save": True}
took = {}
for way, beside in ways.items():
    shutil.rmtree(folder / way, ignore_errors=True)
    with unobserved():
        took[way] = launch(saves, 2, args=(folder / way, beside), device="cpu")
# 2 ranks, 3 saves
stall_ms = {way: sum(sum(row[1]) for row in run.results) / 6 for way, run in took.items()}
lab.measure("stall", 100 * stall_ms["dcp.async_save"] / stall_ms["dcp.save"])
for way, run in took.items():
    print(f"{way}: training stands still for {stall_ms[way]:.0f} ms;", end=" ")
    print("in the save of step 10 every weight is", *run.results[0][2])

# %%
figures.histories(
    {way: run.results[0][0] for way, run in took.items()},
    "With which way do the steps that save take longest?", y="step (ms)",
    marked=("a save", (10, 20, 30)),
)

# %% [markdown]
# Training changed the weights while the first save was written, and the save shows none of it. This costs memory for a second
# copy of the state. A kill during the write leaves no checkpoint of that step: the last *complete* one counts. And if a save
# is not done when the next is due, training must wait for it, or copies pile up.
#
# How often to save then is the question of the next section. Here is its formula, with both stalls:

# %%
for way, ms in stall_ms.items():
    delta_s = save_minutes * 60 * ms / stall_ms["dcp.save"]
    tau_s = formulas.daly_interval_s(delta_s, mtbf_hours * 3600)
    print(f"{way}: held up for {delta_s:.0f} s, by Daly a save every {tau_s / 60:.1f} minutes")
print(f"what is written beside the work for {save_minutes:g} minutes", end=" ")
print("can hardly be begun more often than that")

# %% [markdown]
# **In one sentence:** why is the copy made before `async_save` returns, and not by the thread that writes?
#
# <details><summary>Compare</summary>The next step changes the weights in place. A thread that copied meanwhile would take some
# from before that step and some from after it: a checkpoint of no step at all.</details>

# %% [markdown]
# ## How often should one save?
#
# Save rarely, and a failure takes much work with it; save often, and you save instead of working. Let a save hold the training
# up for $\delta$ seconds, let failures be $M$ seconds apart on average, and let $\tau$ be the work between two saves. Per
# second of work, saves cost $\delta/\tau$. A failure comes every $M$ seconds and on average loses half an interval, $\tau/2$.
# So choose the $\tau$ that minimizes
#
# $$\frac{\delta}{\tau} + \frac{\tau}{2M} \qquad\Rightarrow\qquad \tau = \sqrt{2\,\delta M} \quad\text{(Young, 1974)}$$

# %%
asks = f"A save of {save_minutes:g} minutes, a failure every {mtbf_hours:.1f} hours"
lab.predict("young", f"{asks}: how many minutes of work between two saves?", "minutes")

# %%
lab.measure("young", formulas.young_interval_s(save_minutes * 60, mtbf_hours * 3600) / 60)
print(f"Young: {lab.measured('young'):.1f} minutes of work between two saves")
by_daly_s = formulas.daly_interval_s(save_minutes * 60, mtbf_hours * 3600)
print(f"Daly:  {by_daly_s / 60:.1f} minutes")

# %% [markdown]
# Daly (2006) worked it out without the approximation that failures are rare. A restart takes $R$ seconds, and failures may hit
# saves and restarts too. The share of time spent on work that is kept, the **goodput**, is then
#
# $$\frac{\tau}{M\,e^{R/M}\left(e^{(\tau+\delta)/M}-1\right)}$$
#
# It is largest near $\tau=\sqrt{2\delta M}\,\bigl(1+\tfrac13\sqrt{\delta/2M}+\tfrac19\,\delta/2M\bigr)-\delta$, Daly's
# interval above. All these are averages. You write the replay of *one* day, with its own failures.

# %% [markdown]
# The rules of the day. It begins with work. After `interval_s` of work comes a save of `save_s`, then the next interval. A
# failure loses all work since the last *complete* save and begins a restart of `restart_s`; after that a new, whole interval
# begins. Failures may hit a save (it saves nothing) or a restart (it begins again). When the day ends, work since the last
# save counts: it is not lost. Failures after `day_s` do not happen. Leave the list of failures unchanged.
#
# <details><summary>Hint</summary>Go from failure to failure. Count the whole cycles of interval and save that fit between the
# end of a restart and the next failure: each keeps one interval. What is left over is lost, except at the end of the day. If
# the restart is hit, none fits.</details>

# %% tags=["exercise:goodput"]
# Exercise 15.3: the account of a day
def goodput(interval_s, save_s, restart_s, day_s, failures_at):
    """The share of `day_s` seconds spent on work that was not lost.

    Work for interval_s, save for save_s, over and over. `failures_at` has the seconds of the
    failures, in order. A failure loses the work since the last complete save; after a restart
    of restart_s work goes on from that save.
    """
    ### BEGIN SOLUTION
    kept_s, begin_s = 0.0, 0.0
    for failure_s in [at for at in failures_at if at < day_s]:
        cycles = max(0.0, failure_s - begin_s) // (interval_s + save_s)
        kept_s += cycles * interval_s
        begin_s = failure_s + restart_s
    cycles, rest_s = divmod(max(0.0, day_s - begin_s), interval_s + save_s)
    return (kept_s + cycles * interval_s + min(rest_s, interval_s)) / day_s
    ### END SOLUTION

# %% tags=["check:goodput"] points=1.5
check.goodput(goodput)

# %% [markdown]
# A day depends on luck: how many failures come, and when. Below, your function is asked about many random days, with a restart
# of ten minutes, at Young's interval, a quarter of it and four times it. The dashed lines are Daly's formula.

# %%
# Helper: random days
def failures_of(seed, day, mean):
    """Moments of failures that come at a constant rate, `mean` apart on average."""
    draws, found = random.Random(seed), []
    while sum(found) < day:
        found.append(draws.expovariate(1 / mean))
    return [sum(found[: k + 1]) for k in range(len(found) - 1)]

def replayed(*rules):
    """Your account in %; None where it is not written yet."""
    try:
        return 100 * goodput(*rules)
    except NotYet:
        return None

# %%
factors = {"a quarter": 0.25, "Young's interval": 1.0, "four times": 4.0}
# from here on, all in minutes
minutes = {name: factor * lab.measured("young") for name, factor in factors.items()}
all_moments = [failures_of(seed, 24 * 60, mtbf_hours * 60) for seed in range(lucky_days)]
days = {
    name: [replayed(tau, save_minutes, 10, 24 * 60, at) for at in all_moments]
    for name, tau in minutes.items()
}
print(f"from {min(map(len, all_moments))} to {max(map(len, all_moments))} failures a day")
if None not in days["a quarter"]:
    by_day = zip(days["Young's interval"], *days.values())
    wins = sum(middle == max(middle, *others) for middle, *others in by_day)
    print(f"Young's interval is best of the three on {wins} of {lucky_days} days")
days = {
    name: None if None in shares else list(map(round, shares)) for name, shares in days.items()
}

# %%
most = None
if None not in days.values():
    kept = {name: sum(shares) / len(shares) for name, shares in days.items()}
    best = max(kept, key=kept.__getitem__)
    most = f"{best}: {kept[best]:.1f} % on average"
costs = save_minutes, 10, mtbf_hours * 60
figures.spreads(
    [
        figures.Sample(name, days[name], 100 * formulas.effective_share(tau, *costs))
        for name, tau in minutes.items()
    ],
    figures.answered(
        f"{lucky_days} random days of {gpus:,} GPUs: which interval keeps most?", most
    ),
    x="goodput of a day (%)", mean=True,
)

# %% [markdown]
# ## A day of 16,384 GPUs, on live ranks
#
# Now a day with real processes. Eight ranks train together: each sleeps for a step's work, then all add up their gradients. At
# each failure a rank is killed, with SIGKILL. A supervisor like `torchrun`'s ends the others and restarts all; they read the
# checkpoint that your `save_atomically` wrote, and go on. Only the *clock* is scaled.
#
# One day must stand for many. From `first_seed` on we take the first seed whose day has as many failures as are expected.
# Later we ask how typical that day is.

# %%
hour_s = day_s / 24
save_s, mtbf_s = save_minutes / 60 * hour_s, mtbf_hours * hour_s
print(f"an hour takes {hour_s:g} s; a failure comes every {mtbf_s:.2f} s;", end=" ")
print(f"a save holds up for {save_s * 1e3:.0f} ms")
seed = first_seed
while len(failures_of(seed, day_s, mtbf_s)) != int(day_s / mtbf_s):
    seed += 1
moments = failures_of(seed, day_s, mtbf_s)
failures = [(at, random.Random(at).randrange(cluster)) for at in moments]
print(f"seed {seed}: {len(failures)} failures; {day_s / mtbf_s:.1f} are expected")

# %% [markdown]
# The cost of a restart is measured, not assumed: first in a short rehearsal. Three clusters run at once and share this
# machine's cores, as in the experiment below. (Each of the launch's three ranks supervises one cluster. The ranks of a cluster
# talk over sockets and do not import PyTorch, so they are back soon.)

# %%
def a_day(intervals, day_s, failures, save):
    """The supervisor of one cluster: a day of live ranks that save after so many steps."""
    steps_between = intervals[int(os.environ["RANK"])]
    return live_day(DayPlan(cluster, day_s, 0.02, steps_between, save_s, tuple(failures)), save)

often, kills_at = (4, 8, 24), (1, 2.5)  # steps between two saves; hours
args = often, 4 * hour_s, [(hour * hour_s, 3) for hour in kills_at], save_atomically
rehearsal = launch(a_day, 3, args=args, device="cpu")
cost = {"step_s": 0.02, "save_s": save_s, "restart_s": 0.2}  # until something is measured
if rehearsal.state == "done":
    for key in cost:
        cost[key] = max([day[key] for day in rehearsal.results if day[key] > 0] or [cost[key]])
else:
    print("assumed, until Exercise 15.1 is written:")
for key, seconds in cost.items():
    in_day = f"{60 * seconds / hour_s:.1f} minutes"
    print(f"a {key[:-2]} takes {1e3 * seconds:.0f} ms, in this day {in_day}")

# %% tags=["cover"]
def in_hours(day):
    return day and [(at / hour_s, kept_s / hour_s) for at, kept_s in day["course"]]

rehearsed = rehearsal.results if rehearsal.state == "done" else [None] * 3
figures.kept_work(
    {f"a save every {k} steps": in_hours(day) for k, day in zip(often, rehearsed)}, kills_at,
    "Four hours, two kills: how much work is kept?", hours=4,
)

# %% [markdown]
# Every fall is work lost with a killed rank. The next point comes when all ranks are up again. Now the whole day.

# %%
tau_s = formulas.young_interval_s(cost["save_s"], mtbf_s)
print(f"Young's interval here: {tau_s:.2f} s, in this day {tau_s / hour_s * 60:.0f} minutes")
asks = "Live ranks at Young's interval: what share of the day is work that is kept?"
lab.predict("kept", asks, "%")
lab.predict("often", "And at a quarter of Young's interval?", "%")

# %%
in_steps = [max(1, round(factor * tau_s / cost["step_s"])) for factor in (0.25, 1, 4)]
args = in_steps, day_s, failures, save_atomically
live = launch(a_day, 3, args=args, device="cpu", timeout_s=2 * day_s + 60)
names = "a quarter of Young's", "Young's interval", "four times Young's"
measured = dict(zip(names, live.results)) if live.state == "done" else dict.fromkeys(names)
for id, day in zip(("often", "kept"), measured.values()):
    lab.measure(id, day and 100 * day["work_s"] / day_s)

# %%
figures.kept_work(
    {name: in_hours(day) for name, day in measured.items()},
    [at / hour_s for at, _ in failures],
    "A day with the same failures for all: who keeps most work?",
)

# %% [markdown]
# Three accounts of one day: the live ranks, your replay of its failures, and Daly's formula, which knows only their rate. The
# replay and the formula get the interval, the save and the restart that the live ranks had. Is this an ordinary day? Replays
# of random days with the same costs tell on how many of them less is kept.

# %%
# Helper: three accounts of a day
def account(day):
    """For one live day: its interval in minutes, and goodput in % live, replayed, and by formula."""
    own = day["interval_s"], day["save_s"], day["restart_s"]
    by_rate = formulas.effective_share(*own, mtbf_s)
    yours = replayed(*own, day_s, [at for at, _ in failures])
    return own[0] / hour_s * 60, 100 * day["work_s"] / day_s, yours, 100 * by_rate

def days_below(day, yours):
    """On how many random days, with the costs of this live one, your replay keeps less than `yours`, in %."""
    own = day["interval_s"], day["save_s"], day["restart_s"], day_s
    return sum(replayed(*own, failures_of(seed, day_s, mtbf_s)) < yours for seed in range(lucky_days))

# %%
rows = {name: account(day) for name, day in measured.items()} if live.state == "done" else {}
for name, (tau, kept, yours, by_rate) in rows.items():
    said = "not yet" if yours is None else f"{yours:.1f} %"
    others = f"your replay {said}, Daly {by_rate:.1f} %"
    print(f"{name}, {tau:.0f} minutes: live {kept:.1f} %, {others}")
    if yours is not None:
        below = f"{days_below(measured[name], yours)} of {lucky_days} random days"
        print(f"    less than in this replay is kept on {below}")

# %%
# Helper: the formula at other intervals
def daly(tau_min, day):
    """Goodput in % by the formula, at another interval, with one live day's costs."""
    return 100 * formulas.effective_share(tau_min / 60 * hour_s, day["save_s"], day["restart_s"], mtbf_s)

def nearness(rows):
    """Say how far live days are from Daly's formula, and which day keeps most; None without days."""
    if not rows:
        return None
    most, off = max(rows, key=lambda name: rows[name][1]), max(abs(row[1] - row[3]) for row in rows.values())
    behind = rows[most][1] - rows["Young's interval"][1]
    young = "yes" if most == "Young's interval" else "nearly" if behind < 1 else "no"
    return f"within {off:.1f} points; {young}: {most} keeps {rows[most][1]:.0f} %"

# %%
points, swept = [[(1, None)]] * 2, []
if rows:
    points = [[(row[0], row[k]) for row in rows.values()] for k in (1, 2)]
    sweep = [min(rows.values())[0] * 1.2**k for k in range(-3, 18)]
    day, most = measured["Young's interval"], 1.2 * max(rows.values())[0]
    swept = [(tau, daly(tau, day)) for tau in sweep if tau < most]
    # and at the live days' own intervals
    swept = sorted([*swept, *((row[0], row[3]) for row in rows.values())])
figures.curves(
    [figures.Curve("a live day", points[0], swept), figures.Curve("your replay", points[1])],
    figures.answered(
        "How near do live ranks come to Daly, and is Young's interval best?", nearness(rows)
    ),
    x="minutes between two saves", y="goodput (%)", growth=True,
)

# %%
if rows:
    print(f"on this day {max(rows, key=lambda name: rows[name][1])} keeps most")
    for name, day in measured.items():
        _, kept, _, by_rate = rows[name]
        same = (day["weights"] == undisturbed(day["step"], cluster)).all()
        points = f"{kept - by_rate:+.1f} percentage points from Daly"
        print(f"{name}: live ranks are {points}; {day['kills']} kills; the last",
              f"checkpoint, of step {day['step']}, has the same bits as without a kill: {same}")
    restart_s = measured["Young's interval"]["restart_s"]
    in_day = f"{restart_s / hour_s * 60:.0f} minutes"
    print(f"a restart took {1e3 * restart_s:.0f} ms, in this day {in_day}")

# %% [markdown]
# **In one sentence:** with which of the three intervals does a day depend most on luck, and why?
#
# <details><summary>Compare</summary>The long interval: a whole one is a large part of the day, and a few seconds decide
# whether a failure comes before or after its save. The lanes of the random days show how wide the spread is.</details>

# %% [markdown]
# Turn the knob: it sets the interval, as a multiple of Young's; the failures stay. Each choice is a day of live ranks. Again
# three clusters share the cores, and you see the one that keeps the middle share. Where does the choice hardly matter?

# %%
tried = {1: measured["Young's interval"]}

def another_day(times_young=1):
    if times_young not in tried:
        steps_between = max(1, round(times_young * in_steps[1]))
        given = [steps_between] * 3, *args[1:]
        run = launch(a_day, 3, args=given, device="cpu", timeout_s=2 * day_s + 60)
        days = run.results if run.state == "done" else []
        tried[times_young] = sorted(days, key=lambda day: day["work_s"])[1] if days else None
    courses = {}
    for times in sorted(tried):
        name = "Young's interval" if times == 1 else f"{times:g} times Young's"
        courses[name] = in_hours(tried[times])
    kills = [at / hour_s for at, _ in failures]
    return figures.kept_work(courses, kills, "Which interval keeps most of the day?")

knobs(another_day, times_young=[0.125, 0.25, 0.5, 1, 2, 4, 8])

# %% [markdown]
# How does such a cluster reach 90 %? It could halve $\delta$, or halve $R$, or double $M$. **Before you run the cell:** which
# of these three raises goodput most by Daly's formula, and is one of them enough?

# %%
ways = {
    "as it is": (1, 1, 1), "half δ": (0.5, 1, 1), "half R": (1, 0.5, 1),
    "half δ and half R": (0.5, 0.5, 1), "twice M": (1, 1, 2), "all three": (0.5, 0.5, 2),
    "and saves beside the work, a tenth of that δ": (0.05, 0.5, 2),
}
if lab.measured("stall"):
    stalls = 0.5 * lab.measured("stall") / 100
    ways["and saves beside the work, with the stall of async_save"] = stalls, 0.5, 2
for way, (less_save, less_restart, more_mtbf) in ways.items():
    costs = less_save * save_minutes, less_restart * 10, more_mtbf * mtbf_hours * 60
    tau = formulas.young_interval_s(costs[0], costs[2])  # here all in minutes
    share = formulas.effective_share(tau, *costs)
    print(f"{way}: {100 * share:.1f} % with a save every {tau:.0f} minutes")

# %% [markdown]
# **In one sentence:** why do two of these lines give the same share?
#
# <details><summary>Compare</summary>Only ratios count, δ/M and R/M: doubling the time between failures is as good as halving
# both costs. Large clusters work on all three: they save beside the work, keep warm spare machines, and take out machines that
# fail often.</details>

# %% [markdown]
# ## On with three of four
#
# A machine is lost and there is no spare. If ranks 0, 1 and 3 go on in the middle of an epoch, who takes which samples?
# PyTorch's `DistributedSampler` deals rank r the samples r, r + n, r + 2n, … of the epoch's order. Two ways are tempting. Each
# rank just goes on with its own share. Or they get a sampler for three ranks, and each skips as many samples as it has taken.

# %%
def go_on(order, done, world_size, alive, rate):
    """Each rank goes on with the share that it had."""
    return {rank: order[rank::world_size][done // world_size :] for rank in alive}, rate

def skip(order, done, world_size, alive, rate):
    """A sampler for the ranks that are left; each skips as many samples as it has taken."""
    skipped, n = done // world_size, len(alive)
    return {rank: order[k::n][skipped:] for k, rank in enumerate(alive)}, rate

# %%
lab.predict("never", "24 samples, rank 2 of 4 is lost when 12 are done, the others go on: how many are never taken?", "samples")
lab.predict("twice_taken", "And with a sampler for three, each skips what it has taken: how many samples come twice?", "samples")

# %%
# Helper: an epoch's samples, dealt out before and after a loss
def deal(shares_of, order, done, lost):
    """Who takes which sample in each step: 4 ranks until `done` samples are done, then those that are not `lost`."""
    before = {rank: order[rank:done:4] for rank in range(4)}
    after, _ = shares_of(order, done, 4, [rank for rank in range(4) if rank != lost], 0.1)
    return [[[x] for x in before[rank] + list(after.get(rank, []))] for rank in range(4)]

# %%
order = random.Random(1).sample(range(24), 24)
tempting = {"everybody goes on": go_on, "a sampler for three": skip}
tempting = {way: deal(policy, order, 12, 2) for way, policy in tempting.items()}
times = {way: Counter(x for own in dealt for (x,) in own) for way, dealt in tempting.items()}
for way, taken in times.items():
    never, twice = [x for x in order if not taken[x]], [x for x in order if taken[x] > 1]
    print(f"{way}: never {never}, twice {twice}")
lab.measure("never", sum(not times["everybody goes on"][x] for x in order))
lab.measure("twice_taken", sum(times["a sampler for three"][x] > 1 for x in order))

# %% [markdown]
# The number of ranks changed, so what "skipped" means changed too. Keep the epoch's `order`, and how many of its samples are
# `done` by all ranks together. Then deal out the rest anew: in each step every rank takes one sample, and together these are
# the next ones of `order`. So after every step the samples done are the first of `order`, and at the next loss one number,
# `done`, says the place again. A share is a list of samples: entries of `order`, not places in it. (A list, because the
# training asks how long it is.)

# %% [markdown]
# And the learning rate? Each rank keeps its batch size. So the **global batch**, the samples of all ranks in one step, shrinks
# with the number of ranks. Goyal and others (2017) found that the rate should follow it in proportion: the linear scaling
# rule. `alive` may also have *more* ranks than before.
#
# At a later loss `done` need not be a multiple of the number of ranks. The caller still needs `order` and `alive` unchanged.
#
# <details><summary>Hint</summary>A slice with a step deals out a list. The place of a rank in <code>alive</code> counts, not
# its number.</details>

# %% tags=["exercise:shares_after_loss"]
# Exercise 15.4: the rest of an epoch, for who is left
def shares_after_loss(order, done, world_size, alive, rate):
    """Who takes which samples for the rest of the epoch, and at which learning rate: ({rank:
    samples}, rate).

    The first `done` samples of `order` are trained, by `world_size` ranks at `rate`; the ranks
    in `alive` go on. Every sample left is taken once; when all ranks have taken k more,
    together those are the next ones of `order`.
    """
    ### BEGIN SOLUTION
    left, count = order[done:], len(alive)
    shares = {rank: left[place::count] for place, rank in enumerate(alive)}
    return shares, rate * count / world_size
    ### END SOLUTION

# %% tags=["check:shares_after_loss"] points=1.5
check.shares_after_loss(shares_after_loss)

# %%
policies = {**tempting, "yours": None}
try:
    policies["yours"] = deal(shares_after_loss, order, 12, 2)
except NotYet:
    print("not yet: Exercise 15.4")
figures.shares(
    policies,
    "Rank 2 is lost after three steps: who takes which samples, and is one taken twice"
    " or never?",
    every=order,
)

# %% [markdown]
# Now with live ranks. Four train; rank 2 is killed when three steps are done, and three go on. In every step all ranks add up
# one more thing: which samples they have just used. So the checkpoint knows, from the ranks themselves, how often each sample
# was used.

# %%
# Helper: a training that goes on with other ranks
def elastic(path, order, alive, dies_at=None):
    """Train the rest of the epoch with the ranks in `alive`; rank 0 saves after every step."""
    dist.init_process_group("gloo")
    rank = alive[dist.get_rank()]
    state = torch.load(path) if path.exists() else {"done": 0, "world": 4, "rate": 0.1, "seen": torch.zeros(len(order))}
    shares, rate = shares_after_loss(order, state["done"], state["world"], alive, state["rate"])
    state.update(world=len(alive), rate=rate)
    for k in range(max(map(len, shares.values()))):
        if (rank, k) == (2, dies_at):
            os.kill(os.getpid(), signal.SIGKILL)
        used = torch.zeros(len(order))
        used[list(shares[rank][k : k + 1])] = 1
        dist.all_reduce(used)
        state["seen"] += used
        state["done"] += int(used.sum())
        if dist.get_rank() == 0:
            keep(path, packed(state))
        dist.barrier()
    return state

# %%
lab.predict("rate", "4 ranks train at rate 0.1; 3 go on, with the same batch on each. Which rate?", "")

# %%
order = random.Random(4).sample(range(50), 50)
fresh("elastic.pt")
ended = None
try:
    launch(elastic, 4, args=(folder / "elastic.pt", order, [0, 1, 2, 3], 3), device="cpu")
except RankFailed as failed:
    print(str(failed).splitlines()[0])
    ended = launch(elastic, 3, args=(folder / "elastic.pt", order, [0, 1, 3]), device="cpu")[0]
if ended:
    lab.measure("rate", ended["rate"])
    for often, count in Counter(ended["seen"].int().tolist()).items():
        as_often = f"{often} time{'s' * (often != 1)}"
        print(f"{count} samples were trained {as_often}; the rate is {ended['rate']:g}")

# %% [markdown]
# ## A day without restarts
#
# So far a killed rank stopped all the others: they started again, read a file, and repeated what was not saved. But a data
# parallel rank holds *all* weights. So the others can take the next step without it, as three of four just did, and its
# successor can get the weights from a living rank. Meta's [TorchFT](https://pytorch.org/torchft/) does this, with groups of
# GPUs in place of our ranks. How much of a day does it keep?

# %% [markdown]
# Three rules make it safe:
#
# - **Quorum.** Before each step a supervisor names the ranks that take it: those that are alive and ask for it.
# - **Commit.** A step counts only if all members of its quorum have finished it. Otherwise no rank changes its weights, and
#   the next quorum takes the same samples.
# - **Heal.** A new rank copies the state of a living one: weights, momentum, steps done, place in the data. Then it is a
#   member like any other.

# %%
# Set-up: ranks that go on
import numpy as np

from worldsize.fabric.collectives import all_reduce
from worldsize.pytorch.live_quorum import QuorumPlan, live_quorum

# %%
# Helper: a sample, and what a step does with the samples that were taken
def example(number):
    """Eighths, so that sums are exact in any order."""
    return np.random.default_rng(number).integers(-8, 9, 100) / 8

def update(state, total, taken):
    """Gradient descent with momentum on the mean of ½ |weights − sample|²; `total` is the sum of the samples `taken`."""
    state["momentum"] = 0.9 * state["momentum"] + state["weights"] - total / len(taken)
    state["weights"] = state["weights"] - 0.1 * state["momentum"]
    state["done"] += len(taken)
    state["taken"].append(taken)

def newborn():
    return {"weights": np.zeros(100), "momentum": np.zeros(100), "done": 0, "taken": []}

# %%
def one_step(rank, state, quorum):
    """A step of one member. Its state changes only if all members have finished."""
    if rank in quorum.behind:
        state.update(quorum.fetch())  # from a living rank, over a socket
    own = state["done"] + quorum.members.index(rank)
    time.sleep(0.02)  # the work
    total = quorum.all_reduce(example(own))  # None if a member was lost on the way
    taken = quorum.all_gather(own)
    if quorum.all_finished(taken is not None):
        update(state, total, taken)

# %% [markdown]
# Take the first eight hours of the day above, on two clusters at once. In one, a kill restarts all ranks from the last save. In
# the other every rank runs `one_step` again and again. The same ranks are killed at the same moments, and a lost place stays
# empty for as long as a restart took in the rehearsal.

# %%
part_s = day_s / 3
early = tuple((at, rank) for at, rank in failures if at < part_s)
away = f"{60 * cost['restart_s'] / hour_s:.0f} min without a rank after each"
asks = f"{cluster} ranks, {len(early)} kills in 8 hours, {away}, no restarts"
lab.predict("no_restarts", f"{asks}: what share of the work is kept?", "%")

# %%
def one_way():
    """Rank 0 supervises the cluster with restarts, rank 1 the one without."""
    if os.environ["RANK"] == "1":
        plan = QuorumPlan(cluster, part_s, hour_s, cost["restart_s"], early)
        return live_quorum(plan, newborn(), one_step)
    try:
        plan = DayPlan(cluster, part_s, 0.02, in_steps[1], save_s, early, hours=8)
        return live_day(plan, save_atomically)
    except NotYet:
        return None

restarted, healed = launch(one_way, 2, device="cpu", timeout_s=2 * part_s + 60)
lab.measure("no_restarts", 100 * healed["work_s"] / part_s)

# %%
figures.kept_work(
    {"a restart of all": in_hours(restarted), "a quorum for each step": in_hours(healed)},
    [at / hour_s for at, _ in early],
    "The same kills: who keeps more work, with restarts or without?", hours=8,
)

# %% [markdown]
# With restarts the line falls at a kill and is flat until all ranks are back. Without them, it never falls. Look at its slope
# while a rank is away: how much work does a second bring then? This run's figures:

# %%
# Helper: what the steps of the cluster without restarts say
def told(run):
    """Print steps a second by number of members, what a kill cost, and how many steps did not count."""
    for members in sorted({members for _, members, _ in run["steps"]}, reverse=True):
        same = [b[0] - a[0] for a, b in zip(run["steps"], run["steps"][1:]) if a[1:] == b[1:] == (members, True)]
        if same:
            rate = len(same) / sum(same)
            print(f"{members} members: {rate:.1f} steps a second, {members * rate:.0f} samples a second")
    dropped = sum(not counts for *_, counts in run["steps"])
    print(f"{dropped} of {len(run['steps'])} steps did not count")
    print(f"a kill stopped all for {1e3 * run['pause_s']:.0f} ms; its place was empty for {1e3 * run['away_s']:.0f} ms")

# %%
told(healed)
print(f"a step of all took {1e3 * healed['step_s']:.1f} ms")
if restarted:
    step_ms, restart_ms = 1e3 * restarted["step_s"], 1e3 * restarted["restart_s"]
    print(f"with restarts: a step took {step_ms:.1f} ms, a restart {restart_ms:.0f} ms")
    print(f"kept with restarts: {100 * restarted['work_s'] / part_s:.1f} % of the time")

# %% [markdown]
# Is it still one training? In every step the members told each other which samples they used, and the list went with the
# weights to each new rank. So we let one process take the same samples, step by step, and compare the weights. (The learning
# rate stays fixed here; by the rule above it would be lower while a rank is away.)

# %%
one, *others = healed["states"].values()
alone = newborn()
for taken in one["taken"]:
    update(alone, sum(example(number) for number in taken), taken)
how_often = Counter(Counter(number for taken in one["taken"] for number in taken).values())
for times_taken, count in how_often.items():
    print(f"{count:,} samples were taken {times_taken} time{'s' * (times_taken != 1)}")
never = one["done"] - sum(how_often.values())
print(f"of the first {one['done']:,} samples {never} were never taken")
alike = all((state["weights"] == one["weights"]).all() for state in others)
print("all ranks have the same bits:", alike)
print("and one process alone has them too:", bool((alone["weights"] == one["weights"]).all()))

# %% [markdown]
# Samples are dealt out from the current place in the data, so a step that did not count gives its samples back. TorchFT's own
# sampler gives each group a fixed part of the data, and leaves out that of a lost group. And in TorchFT each group decides for
# itself whether a step counts; one that falls behind heals.
#
# Now 16,384 GPUs. A failure stops all groups for $P$ seconds and takes one of $n$ away for $A$ seconds; on average $A/M$ groups
# are away (Little, 1961). The goodput is about $(1-P/M)\,(1-A/nM)$.

# %%
lab.predict("by_groups", "32 groups of 512 GPUs; a failure stops all for 1 minute and one group for 10: what goodput?", "%")

# %%
in_minutes = mtbf_hours * 60
lab.measure("by_groups", 100 * formulas.share_without_restarts(1, 10, 32, in_minutes))
by_restarts = formulas.effective_share(lab.measured("young"), save_minutes, 10, in_minutes)
print(f"with restarts of 10 minutes, a save of {save_minutes:g}: {100 * by_restarts:.1f} %")
for pause, groups in ((1, 8), (1, 32), (1, 128), (5, 32)):
    share = formulas.share_without_restarts(pause, 10, groups, in_minutes)
    stop = f"{pause} minute{'s' * (pause != 1)}"
    print(f"{groups} groups, all stopped for {stop}: {100 * share:.1f} %")
if early:
    seconds = healed["pause_s"], healed["away_s"]
    own = formulas.share_without_restarts(*seconds, cluster, part_s / len(early))
    found = lab.measured("no_restarts")
    print(f"the live ranks, by this formula {100 * own:.1f} %, measured {found:.1f} %")

# %% [markdown]
# **In one sentence:** what does such a run still need a checkpoint for?
#
# <details><summary>Compare</summary>For whatever takes down all copies at once: the hall's power, the network, or an error
# that all ranks share. That is rare, so saves may be hours apart. Within a group the weights are cut (Lab 12): one GPU lost is
# a group lost, and larger groups mean fewer copies.</details>

# %% [markdown]
# ## A slow rank
#
# Some ranks do not fail: they get slow. MegaScale (Jiang and others, 2024) found about 0.5 % of the machines some 10 % slower
# than the others. Below, four ranks add up their gradients round a ring, and one of them, drawn by a seed, works 1.3 times as
# long. Each rank times its own steps. Which number from the run names the slow one: its step time, or something else?

# %%
def slowed(fabric, slow, work_s, count):
    """`count` steps, longer ones on rank `slow`; returns the mean time of this rank's steps."""
    with span("all have started"):
        all_reduce(fabric, torch.ones(1000))
    began_s = time.perf_counter()
    for _ in range(count):
        time.sleep(work_s * (1.3 if fabric.rank == slow else 1))
        all_reduce(fabric, torch.ones(1000))
    return (time.perf_counter() - began_s) / count

# %%
lab.predict("slowest", "The mean time of a step on each rank: how many times as long is the longest as the shortest?", "times")

# %%
drawn = random.Random(first_seed).randrange(4)
uneven = launch(slowed, 4, args=(drawn, 0.05, 12), device="cpu")
lab.measure("slowest", max(uneven.results) / min(uneven.results))
started_s = max(own.end_s for own in uneven.trace.spans if own.label == "all have started")
trace = uneven.trace.between(started_s, float("inf"))
print("a step in ms, by rank:", *(f"{1e3 * step_s:.1f}" for step_s in uneven.results))

# %% [markdown]
# In every step each rank needs what all others computed, so all end up equally slow. A table of step times shows that the
# steps got longer, but not because of whom. But the run's trace has the waits too. **Before you look:** which rank waits
# least?

# %%
figures.timeline(trace)

# %%
def slow_rank(trace):
    """The rank that waits least, and each one's seconds of waiting in receives and sends."""
    waits_s = [0.0] * trace.world_size
    for span in trace.spans:
        if span.kind == "recv":
            waits_s[span.rank] += span.end_s - span.start_s
        elif span.kind == "send" and span.wait_start_s is not None:
            waits_s[span.rank] += span.end_s - span.wait_start_s
    return min(range(trace.world_size), key=waits_s.__getitem__), waits_s

named, waits_s = slow_rank(trace)
print("waits in ms a step, by rank:", *(f"{1e3 * wait_s / 12:.1f}" for wait_s in waits_s))
print(f"the waits name rank {named}; rank {drawn} was drawn")

# %%
machines, part = 12_288 // 8, 0.005
expected = machines * part
print(f"{machines:,} machines of 8 GPUs, {part:.1%} of them slow: {expected:.0f} expected")
print(f"chance that there is none: {(1 - part) ** machines:.2%}")

# %% [markdown]
# So at that size every job would pay for its slowest machine, in every step. MegaScale timed the *work* itself on each
# machine, without the waits, and drew it as a heat map; the slow machines stood out and were removed.
#
# **In one sentence:** all ranks wait, long and alike. Whom do you suspect?
#
# <details><summary>Compare</summary>No rank: one that computes longer waits less. The time goes into what they all use: a slow
# link of the ring, or the network.</details>

# %% [markdown]
# ## Who is missing?
#
# Not every failure kills. A rank may just stand still: a disk that does not answer, a GPU that hangs. Then all others wait in
# their next all-reduce, and nothing says why. (Lab 02 showed PyTorch's `monitored_barrier` and its flight recorder.) The
# simplest tool is a **heartbeat**: every rank notes what it is about to do, where others can read it.

# %%
def beats(stands_still):
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))  # nobody waits longer
    rank = dist.get_rank()
    for step in range(1, 21):
        for phase, doing in enumerate(("loads its batch", "adds up gradients")):
            keep(folder / f"rank{rank}.beat", json.dumps([step, phase, doing]).encode())
            if (rank, step, phase) == (stands_still, 7, 0):
                os.kill(os.getpid(), signal.SIGSTOP)
            if phase == 1:
                dist.all_reduce(torch.ones(1000))

# %%
files = [folder / f"rank{rank}.beat" for rank in range(4)]
fresh(*files)
try:
    launch(beats, 4, args=(2,), device="cpu")
except RankFailed as failed:
    print(str(failed).splitlines()[0])
unborn = [0, 0, "has not begun"]
last = [json.loads(file.read_text()) if file.exists() else unborn for file in files]
for rank, (step, _, doing) in enumerate(last):
    print(f"rank {rank}, step {step}: {doing}")
earliest = min(beat[:2] for beat in last)
missing = [rank for rank, beat in enumerate(last) if beat[:2] == earliest]
print("missing:", *(f"rank {rank}" for rank in missing))

# %% [markdown]
# Whom does the error name, and who is really missing? The missing rank is not the one that waits longest, but the one whose
# last beat is earliest. The 3 seconds are our `init_process_group(timeout=…)`: the default is 10 minutes with NCCL and 30 with
# gloo. What does a hang cost until then?

# %%
print(f"10 minutes of {gpus:,} GPUs that wait: {gpus * 10 / 60:,.0f} GPU hours")
daily = 24 / mtbf_hours
lost = daily * 10 / (24 * 60)
print(f"of a day with {daily:.0f} failures, if each were found so late: {lost:.0%}")

# %% [markdown]
# ## A hang in somebody else's code (optional)
#
# A training loop seldom calls a collective itself: DDP does, within `backward`. So a rank can miss one, and no line of your
# code says so. Below, rank 0 has one batch fewer than the others. Half a second later every rank writes down the end of its
# flight recorder, which lab 02 read. What did rank 0 post last, and what the others?

# %%
def one_batch_fewer():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))

    def note_posted():
        entries = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())["entries"]
        posted = [(e["collective_seq_id"], e["profiling_name"], e["retired"]) for e in entries]
        keep(folder / f"rank{rank}.posted", json.dumps(posted).encode())

    threading.Timer(0.5, note_posted).start()
    for _ in range(3 - (rank == 0)):
        model(torch.ones(2, 4)).sum().backward()

# %%
try:
    launch(one_batch_fewer, 3, device="cpu")
except Deadlock as hang:
    print(str(hang).splitlines()[0])
for rank in range(3):
    for number, name, over in json.loads((folder / f"rank{rank}.posted").read_text())[-2:]:
        print(f"rank {rank}, collective {number}: {name}, {'over' if over else 'never over'}")

# %% [markdown]
# Rank 0's last collective is over. The others have posted one more, which never is. Nobody can tell from one rank's record,
# since a slow rank's looks the same: it takes the records of all, compared number by number, and the knowledge that rank 0 has
# returned. `launch` does this while ranks wait, and draws what it finds.

# %%
figures.waiting(last_run())

# %% [markdown]
# DDP has a remedy for uneven batches: under `with model.join():` a rank that has ended answers the others' all-reduces with
# zeros. What does that change in the average? Try it in the cell above.
#
# <details><summary>Compare</summary>By default DDP still divides by all ranks, so the last batches count less, one rank's zeros
# among them; with `divide_by_initial_world_size=False` it divides by the ranks that still have a batch.</details>

# %% [markdown]
# ## A bit that flips
#
# The last kind raises no error at all: a GPU computes wrongly, or a bit of memory flips. This is **silent data corruption**;
# it caused 6 of Llama 3's 419 unplanned interruptions. But data parallel ranks have something that a single one lacks:
# replicas. After every step all weights must be equal, *bit by bit*. So compare them, with a **digest**: a short number that
# any changed bit changes. (What goes wrong *before* the all-reduce is added into all replicas alike, and no digest sees it:
# then one must compute twice.)

# %%
# Helper: a digest, the rank that differs, and a bit that flips
def digest(weights):
    """64 bits that stand for a flat tensor of float32: another tensor has, in practice, another digest."""
    bits = weights.view(torch.int32).long()
    return ((bits + 1) * (2 * torch.arange(len(bits)) + 1) * 2654435761).sum()

def odd_one(values):
    """The rank whose value differs from that of most; None if all agree."""
    common, _ = Counter(values).most_common(1)[0]
    return next((rank for rank, value in enumerate(values) if value != common), None)

def flip(weights, place, bit):
    weights.view(torch.int32)[place] ^= (1 << bit) - (1 << 32) * (bit == 31)

# %% [markdown]
# A digest from each rank, 8 bytes, says *that* something is wrong, and on which rank. To find the place, split: are the
# digests of the first half equal? Then the error is in the second. Split that, and so on.

# %%
# Helper: halves, until one place is left
def locate(weights):
    """Where one rank's weights differ: (place, rounds). All ranks call it together."""
    low, high, rounds = 0, len(weights), 0
    while high - low > 1:
        middle, rounds = (low + high) // 2, rounds + 1
        halves = gather(digest(weights[low:middle]).reshape(1))
        if odd_one([half.item() for half in halves]) is None:
            low = middle
        else:
            high = middle
    return low, rounds

# %%
# Helper: a training whose replicas are compared
def watched(flips_at, bit, mends, count=40):
    """Losses of a training in which a bit of rank 2 flips, and what the digests found."""
    dist.init_process_group("gloo")
    model, found = mlp([784, 32, 10], seed=0), None
    for step in range(1, count + 1):
        own = slice(dist.get_rank() * 32, dist.get_rank() * 32 + 32)
        loss = F.cross_entropy(model(images[own].flatten(1)), labels[own])
        model.zero_grad()
        loss.backward()
        dist.all_reduce(loss.data)
        report(step=step, loss=loss.item() / dist.get_world_size())
        flat = torch.cat([p.data.flatten() for p in model.parameters()])
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(grads)
        flat -= 0.1 * grads / dist.get_world_size()
        if (dist.get_rank(), step) == (2, flips_at):
            flip(flat, 9_000, bit)
        odd = odd_one([value.item() for value in gather(digest(flat).reshape(1))])
        if mends and odd is not None:
            found = found or (step, odd, *locate(flat))
            dist.broadcast(flat, src=(odd + 1) % dist.get_world_size())
        torch.nn.utils.vector_to_parameters(flat, model.parameters())
    return found

# %%
lab.predict("rounds", "25,450 weights, one of them wrong: how many rounds of halves until it is found?", "rounds")

# %%
mended = launch(watched, 4, args=(12, 30, True), device="cpu")
at, who, place, rounds = mended[0]
lab.measure("rounds", rounds)
print(f"after step {at}: rank {who} differs from the others;", end=" ")
print(f"weight {place:,}, found in {rounds} rounds of 8 bytes")

# %%
# Helper: whether a loss shows the flip, in words
def shown(flawed, mended, after=12):
    """Name the first step after the flip whose loss is a twentieth off the mended run's, or the largest difference."""
    off = [abs(one / other - 1) for one, other in zip(flawed, mended)]
    for step in range(after, len(off)):
        if not off[step] < 0.05:  # not a number, too
            return f"yes, at step {step + 1}: {flawed[step]:.3g} instead of {mended[step]:.3g}"
    return f"no: at most {100 * max(off[after:]):.1g} % from the mended run"

# %%
def flipped(bit=30):
    unnoticed = launch(watched, 4, args=(12, bit, False), device="cpu")
    runs = {f"bit {bit}, unnoticed": unnoticed, "found and mended": mended}
    courses = {name: [row["loss"] for row in run.reports[0]] for name, run in runs.items()}
    asks = "A bit of one weight on one rank flips after step 12: does the loss show it?"
    answer = shown(*courses.values()) if mended.state == "done" else None
    return figures.histories(courses, figures.answered(asks, answer), y="loss", log=True)

knobs(flipped, bit=[0, 12, 22, 25, 30, 31])

# %% [markdown]
# Turn the knob. In a float32 the bits 0 to 22 are the digits, 23 to 30 the exponent, 31 the sign.
#
# **In one sentence:** which flips would you never see in the loss, and what do they do to rank 2 from then on?
#
# <details><summary>Compare</summary>Low bits: the loss does not move. But rank 2 now trains other weights, its gradients go to
# everybody, and the rank that saves decides what is kept. With two replicas there is no majority: then both go back to the
# last checkpoint.</details>

# %% [markdown]
# ## Told to go (optional)
#
# Some ends are announced. A scheduler that needs the machine for somebody more urgent **preempts** the job: it sends a signal,
# waits a little, then kills. So note the signal, finish the step, save, and leave. One trap: the signal may reach one rank
# before the others. If that one leaves at once, the others hang. All ranks decide *together*, by an all-reduce of a flag.

# %%
def preemptible(path, told_at=None):
    dist.init_process_group("gloo")
    told = []
    signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
    done = json.loads(path.read_text()) if path.exists() else 0
    while done < 10:
        if (dist.get_rank(), done) == (1, told_at):
            os.kill(os.getpid(), signal.SIGUSR1)  # here we play the scheduler
        leave = torch.tensor(float(bool(told)))
        dist.all_reduce(leave)  # a step, and the flag with it
        done += 1
        if leave or done == 10:
            if dist.get_rank() == 0:
                keep(path, json.dumps(done).encode())
            return done

# %%
fresh("place.json")
for told_at in (4, None):
    run = launch(preemptible, 4, args=(folder / "place.json", told_at), device="cpu")
    print("ranks left after so many steps:", run.results)

# %% [markdown]
# With Slurm a batch script does the rest. `--signal` asks for the signal two minutes before the time limit (a preempted job
# gets SIGTERM), `--requeue` lets the job go back into the queue, and `SLURM_RESTART_COUNT` numbers its lives. Here each step
# is a short sleep, and the script sends the signal to itself. With ranks from `srun`, write `srun … & wait`: otherwise bash
# heeds the signal only when they are done.

# %%
batch = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output=job.log
#SBATCH --signal=B:USR1@120 --time=00:10:00
life=${SLURM_RESTART_COUNT:-0}
done=$(cat place 2>/dev/null || echo 0)
echo "life $life: goes on after $done steps"
trap 'leave=yes' USR1
while [ "$done" -lt 8 ] && [ -z "$leave" ]; do
  sleep 0.1; done=$((done + 1))
  if [ "$life $done" = "0 5" ]; then kill -USR1 $$; fi
done
echo "$done" > place; echo "life $life: leaves after $done steps"
if [ -n "$leave" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
"""
(folder / "job.sh").write_text(batch)
fresh("place", "job.log")
print(batch)

# %%
def on_slurm(number, timeout_s=120):
    """Wait until the job has come back; a requeued one would otherwise wait two minutes."""
    log, until_s = folder / "job.log", time.monotonic() + timeout_s
    start_now = ["scontrol", "update", f"JobId={number}", "StartTime=now"]
    while time.monotonic() < until_s:
        if log.exists() and "life 1: leaves" in log.read_text():
            break
        time.sleep(1)
        subprocess.run(start_now, capture_output=True)
    print(log.read_text())

def slurm_answers():
    if not shutil.which("sinfo"):
        return False
    return subprocess.run(["sinfo", "-h"], capture_output=True, timeout=20).returncode == 0

if slurm_answers():
    on_slurm(terminal("sbatch", "--parsable", "job.sh", folder=folder).strip())
else:
    print("No Slurm answers here: the script by hand, twice,", end=" ")
    print("with a scontrol that only says what it is told.")
    (folder / "played.sh").write_text('scontrol() { echo "scontrol $*"; }\n' + batch)
    for life in "01":
        env = {"SLURM_RESTART_COUNT": life, "SLURM_JOB_ID": "4711"}
        terminal("bash", "played.sh", folder=folder, env=env)

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Young, *A first order approximation to the optimum checkpoint interval* (CACM 17, 1974). Daly, *A
# higher order estimate …* (Future Generation Computer Systems 22, 2006), equations 20 and 37. Kokolis and others,
# *Revisiting reliability in large-scale machine learning research clusters*
# ([arXiv:2410.21680](https://arxiv.org/abs/2410.21680), HPCA 2025). [TorchFT](https://pytorch.org/torchft/). Jiang and others,
# *MegaScale* ([arXiv:2402.15627](https://arxiv.org/abs/2402.15627), NSDI 2024). *The Llama 3 herd of models*
# ([arXiv:2407.21783](https://arxiv.org/abs/2407.21783), 2024), section 3.3.4. Hochschild and others, *Cores that don't count*
# (HotOS 2021). Ma and others, *Understanding silent data corruption in LLM training*
# ([arXiv:2502.12340](https://arxiv.org/abs/2502.12340), 2025). Goyal and others
# ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677), 2017), section 2.1.
