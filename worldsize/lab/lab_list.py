"""The labs of the course by number: each one's title, points and prerequisites."""

from typing import NamedTuple


class Listing(NamedTuple):
    """A lab in the course's table; `after` has its prerequisites, as its own first lines name them."""

    title: str
    points: int
    after: tuple[str, ...] = ()


LABS = {
    "00": Listing("Start here: your first ranks", 4),
    "01": Listing("Why distribute: throughput, speedup, efficiency, and the model's own metrics", 6, ("00",)),
    "02": Listing("Messages and collectives", 6, ("00",)),
    "03": Listing("Model parallelism: layers and pipelines", 6, ("00",)),
    "04": Listing("Data parallelism: replicas and averaged gradients", 6, ("00",)),
    "05": Listing("Synchronous and asynchronous updates", 6, ("00",)),
    "06": Listing("Parameter server and ring all-reduce", 6, ("00",)),
    "07": Listing("TensorFlow by hand: towers, in-graph, between-graph", 6, ("05", "06")),
    "08": Listing("tf.distribute on one machine", 6, ("04", "06")),
    "09": Listing("tf.distribute across machines", 6, ("05", "08")),
    "10": Listing("PyTorch DataParallel and DistributedDataParallel", 6, ("00",)),
    "11": Listing("DDP from the inside", 6, ("04", "06")),
    "12": Listing("Sharding: tensor parallel, ZeRO, FSDP", 6, ("04", "06")),
    "13": Listing("Large batches", 6, ("04", "10")),
    "14": Listing("Communicate less", 6, ("04", "06")),
    "15": Listing("Failures and elasticity", 6, ("04", "06")),
    "16": Listing("Capstone: predict a 10,000-GPU run", 6, ("03", "06", "12")),
    "17": Listing("Long sequences and experts", 6, ("02", "06")),
}
