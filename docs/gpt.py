"""Train a small GPT on sums such as "27+58=85", on one device, or on every rank that torchrun starts.

    python gpt.py
    torchrun --standalone --nproc-per-node 4 gpt.py
    torchrun --standalone --nproc-per-node 4 gpt.py --sharded

An ordinary script, which knows nothing of World Size: own-work.md takes it to ranks. `--sharded` trains with FSDP2 in place of
DDP.
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

try:
    from tqdm import tqdm
except ImportError:

    def tqdm(steps, **_):
        return steps


LETTERS = "0123456789+=. "
LENGTH = 12  # of a line, padded with blanks


class Sums(Dataset):
    """Lines of text as numbers of letters: (the line without its last letter, the line without its first)."""

    def __init__(self, count, seed):
        random = torch.Generator().manual_seed(seed)
        self.pairs = torch.randint(100, (count, 2), generator=random)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, number):
        a, b = self.pairs[number].tolist()
        line = f"{a}+{b}={a + b}.".ljust(LENGTH)
        letters = torch.tensor([LETTERS.index(letter) for letter in line])
        return letters[:-1], letters[1:]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS), bias=False)

    def forward(self, letters):
        x = self.letters(letters) + self.places(torch.arange(letters.shape[1], device=letters.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, x, y, device):
    with torch.autocast(device.type, dtype=torch.bfloat16):
        logits = model(x.to(device))
    return F.cross_entropy(logits.float().flatten(0, 1), y.to(device).flatten())


def average(value, world_size):
    """Return the mean over the ranks."""
    if world_size > 1:
        dist.all_reduce(value)
    return value.item() / world_size


def wrapped(model, device, world_size, sharded):
    if world_size == 1:
        return model
    if not sharded:
        return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def weights_of(model, sharded):
    """Return the whole model's weights, on rank 0 at least. Every rank must call this."""
    if sharded:
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return getattr(model, "module", model).state_dict()


def main(steps=60, batch_size=32, accumulate=2, layers=2, width=64, sharded=False, folder="."):
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    sharded = sharded and world_size > 1

    torch.manual_seed(0)
    model = wrapped(GPT(width, layers=layers).to(device), device, world_size, sharded)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    own = batch_size // world_size // accumulate  # of each micro-batch
    rows = Sums(steps * batch_size, seed=1)
    batches = iter(DataLoader(rows, own, num_workers=2, sampler=DistributedSampler(rows, world_size, rank)))
    losses = []
    bar = tqdm(range(steps), disable=rank != 0)
    for _ in bar:
        total = torch.zeros((), device=device)
        for micro in range(accumulate):
            last = micro == accumulate - 1
            if sharded:
                model.set_requires_gradient_sync(last)
            waits = model.no_sync() if world_size > 1 and not sharded and not last else contextlib.nullcontext()
            with waits:
                loss = loss_of(model, *next(batches), device) / accumulate
                loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(average(total, world_size))

    weights = weights_of(model, sharded)
    if rank == 0:
        torch.save({"model": weights, "steps": steps}, os.path.join(folder, "gpt.pt"))
        print(f"rank 0 of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        plot(losses, folder)
    return losses


def plot(losses, folder):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss")
    figure.savefig(os.path.join(folder, "gpt.png"))
    plt.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in {"steps": 60, "layers": 2, "width": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sharded", action="store_true")
    main(**vars(parser.parse_args()))
    if dist.is_initialized():
        dist.destroy_process_group()
