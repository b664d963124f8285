"""Small sizes for each lab: what its quick run puts in the place of its own parameters.

Every section still shows its effect, in about a tenth of the work. A lab whose row is empty is small as it is.
Left out: sentences that hold at full size only; `make soak PART=labs` runs every lab with its own parameters.
"""

from typing import Any

QUICK: dict[str, dict[str, Any]] = {
    "00": {},
    "01": {
        "batch": 128, "rounds": 4, "most_workers": 8, "most_images": 256, "target": 0.5, "alone_steps": 80, "team_steps": 30,
    },
    "02": {"worlds": [2, 4], "tensor_bytes": 100_000, "tries": 2, "bare_largest": 8_000_000},
    "03": {"forward_s": 0.01, "backward_s": 0.02, "micro_batches": [4, 8, 16], "rows": 4},
    "04": {"epochs": 3, "images_count": 317, "sweep": [6, 96, 384]},
    "05": {"workers": 4, "worlds": [1, 2, 4], "pool": 6, "work_s": 0.01, "trainings": 3},
    "06": {"worlds": [2, 4], "large_bytes": 400_000, "bare_bytes": 1_000_000, "simulated_worlds": [2, 4, 16, 64]},
    "07": {"steps": 12, "updates": 24, "work_s": 0.01},
    "08": {"steps": 4, "mobile_replicas": 1, "per_replica": 4, "mobile_steps": 2, "mobile_epochs": 1},
    "09": {"closures": 40, "updates": 60},
    "10": {"images_count": 128, "batch": 32, "steps": 1, "epochs": 3},
    "11": {
        "layers": 8, "width": 64, "wide_width": 128, "long_steps": 4, "bucket_counts": [1, 2, 4, 8], "encoder_layers": 4,
    },
    "12": {
        "width": 32, "batches": [16, 64, 256], "sequence_length": 64, "words": 512, "tokens": 64, "images_count": 128, "steps": 3,
        "stack_width": 128, "stack_layers": 4, "work_ms": 5,
    },
    "13": {
        "images_count": 1024, "test_count": 1000, "epochs": 3, "large": 256, "warmups": [0, 1], "sweep": [32, 128, 512],
        "goal": 45, "most_steps": 100, "norm_rows": [2, 8],
        "below_critical": [64, 32, 16], "rate_goal": 50,
    },
    "14": {
        "seeds": [0, 1], "steps": 16, "hidden": 32, "alone": [1, 4, 16], "many": [4, 16], "bandwidths": ["10 MB/s", "1 GB/s"],
    },
    "15": {"kills": 60, "steps": 12, "dies_at": 8, "day_s": 4.0, "lucky_days": 30},
    "16": {
        "steps": 4, "elements": 64_000, "machines": 10, "far_ranks": [2, 4, 8, 16, 64], "race_ranks": [16, 64],
        "knob_ranks": [16, 64], "tree_ranks": [4, 8, 16], "chunked": [1, 2], "sharded_over": 1_000, "held_width": 1_000,
        "mesh_steps": 2,
    },
    "17": {"length": 256, "width": 32, "far_ranks": [2, 16, 64], "images_count": 256, "steps": 20, "work_ms": 5},
}  # fmt: skip
