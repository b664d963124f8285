"""Written by `worldsize build`: what every lab's notebook was when it was released, by the lab's number."""

# digests of its set-up cells, by which a check knows a changed one
SETUPS = {
    "00": ("ef15ae8d5556",),
    "01": ("ae6f2d86e5d3",),
    "02": ("63768f8032ed",),
    "03": ("aa866ea06616",),
    "04": ("1ef6e365d54c", "410d00a7cfe5",),
    "05": ("87636f56d05c", "51c09b2a57c2",),
    "06": ("9028f5e13ce9", "ecba5076f40c",),
    "07": ("2e2c61320973",),
    "08": ("c139d845cdf1", "916888e60e5b",),
    "09": ("53d76dadebe5",),
    "10": ("b4e44ee7d54e", "9c0b763700f1", "20f266975f08",),
    "11": ("a31955e90c64", "680aee8ea332",),
    "12": ("ed741b33a725", "0409c379c0b0", "c192fa28bd54", "7461f778a5ed", "6d52199b7a4e", "da5b94b56ba5",),
    "13": ("0a09acef768b", "89a78fe5337f", "40a5161c699e", "e29eef4134ee",),
    "14": ("471390255acc",),
    "15": ("44cbce352669", "9950423f2ef8",),
    "16": ("024e9676300a", "20ae797ed31e", "2b21b9973ef8",),
    "17": ("eeeb91864b15", "ee0d0f7fbcef", "961c534bd4fc",),
}

# the first lines of its exercises' cells
EXERCISES = {
    "00": {
        "pass_right": "# Exercise 0.1: pass a tensor to the right",
    },
    "01": {
        "seconds_per_step": "# Exercise 1.1: a timer of finished work",
        "serial_seconds": "# Exercise 1.2: the seconds that nobody shares",
        "smallest_batch": "# Exercise 1.3: when the all-reduce is small",
        "training_bytes": "# Exercise 1.4: the memory of a training step",
    },
    "02": {
        "tree_broadcast": "# Exercise 2.1: a broadcast as a tree",
        "tree_reduce": "# Exercise 2.2: a reduce as a tree",
        "all_to_all": "# Exercise 2.3: an all-to-all that keeps every card busy",
        "fit_alpha_beta": "# Exercise 2.4: latency and bandwidth from measured times",
    },
    "03": {
        "run_stage": "# Exercise 3.1: one stage of a split model",
        "gpipe": "# Exercise 3.2: the GPipe schedule",
        "one_forward_one_backward": "# Exercise 3.3: the 1F1B schedule",
        "balanced_cuts": "# Exercise 3.4: balanced cuts",
    },
    "04": {
        "shards": "# Exercise 4.1: shares of every batch",
        "same_start": "# Exercise 4.2: the same start",
        "average_gradients": "# Exercise 4.3: the average of gradients",
        "train_replicas": "# Exercise 4.4: replicas that train as one",
    },
    "05": {
        "async_server": "# Exercise 5.1: the asynchronous server",
        "bounded_server": "# Exercise 5.2: the gate of bounded staleness",
        "backup_server": "# Exercise 5.3: the barrier with backup workers",
        "time_at_best_rate": "# Exercise 5.4: the time to the goal at the best learning rate",
    },
    "06": {
        "parameter_server": "# Exercise 6.1: a parameter server",
        "sharded_parameter_server": "# Exercise 6.2: a sharded parameter server",
        "reduce_scatter": "# Exercise 6.3: reduce-scatter round the ring",
        "all_gather": "# Exercise 6.4: all-gather round the ring",
        "ring_all_reduce": "# Exercise 6.5: the ring all-reduce",
    },
    "07": {
        "average_tower_gradients": "# Exercise 7.1: average the towers' gradients",
        "decayed_rate": "# Exercise 7.2: exponential learning-rate decay",
        "place_variables": "# Exercise 7.3: place variables by their bytes",
        "between_graph": "# Exercise 7.4: a between-graph worker",
    },
    "08": {
        "missing_devices": "# Exercise 8.1: which devices are missing?",
        "replica_loss": "# Exercise 8.2: the loss of one replica",
        "mirrored_step": "# Exercise 8.3: one training step on every replica",
        "tree_sum": "# Exercise 8.4: a sum that meets in a tree",
    },
    "09": {
        "cluster_config": "# Exercise 9.1: TF_CONFIG",
        "worker_share": "# Exercise 9.2: a worker's share of every batch",
        "score": "# Exercise 9.3: an exact score with a coordinator",
        "train_through": "# Exercise 9.4: through the loss of a server",
        "audit": "# Exercise 9.5: where did updates get lost?",
    },
    "10": {
        "my_share": "# Exercise 10.1: DistributedSampler by hand",
        "train_ddp": "# Exercise 10.2: a training with DDP",
        "exact_accuracy": "# Exercise 10.3: exact in spite of padding",
        "train_resumable": "# Exercise 10.4: save, load, resume",
    },
    "11": {
        "flattened": "# Exercise 11.1: one all-reduce of everything",
        "overlapped": "# Exercise 11.2: begin in the hook, wait after backward",
        "fill_buckets": "# Exercise 11.3: fill the buckets",
        "bucketed": "# Exercise 11.4: buckets inside backward",
        "accumulate": "# Exercise 11.5: micro-batches",
    },
    "12": {
        "parallel_mlp": "# Exercise 12.1: an MLP of shards, with f and g",
        "sequence_parallel": "# Exercise 12.2: tokens in parts, between layers in parts",
        "sharded_adam": "# Exercise 12.3: Adam with its state in parts",
        "stage_3": "# Exercise 12.4: gather, use, free; one layer ahead",
    },
    "13": {
        "scaled_rate": "# Exercise 13.1: the rate of a step",
        "big_batch_step": "# Exercise 13.2: one step of many parts",
        "noise_scale": "# Exercise 13.3: the gradient noise scale",
        "synced_norm": "# Exercise 13.4: batch norm over the rows of all ranks",
    },
    "14": {
        "top_k_average": "# Exercise 14.1: the largest numbers, and the rest kept",
        "power_sgd_average": "# Exercise 14.2: two thin matrices",
        "local_sgd": "# Exercise 14.3: local steps and an outer step",
        "pays_below": "# Exercise 14.4: when does it pay?",
    },
    "15": {
        "save_atomically": "# Exercise 15.1: a save that cannot be torn",
        "train_to_the_end": "# Exercise 15.2: go on with the same bits",
        "goodput": "# Exercise 15.3: the account of a day",
        "shares_after_loss": "# Exercise 15.4: the rest of an epoch, for who is left",
    },
    "16": {
        "forecast": "# Exercise 16.1: one more step, on 8 ranks",
        "two_level_all_reduce": "# Exercise 16.2: an all-reduce of two levels",
        "predict_steps": "# Exercise 16.3: from 64 GPUs to 512",
        "best_plan": "# Exercise 16.4: the fastest plan that fits",
    },
    "17": {
        "ring_attention": "# Exercise 17.1: exact attention, with keys and values that travel",
        "my_tokens": "# Exercise 17.2: which tokens a rank owns",
        "attention_seconds": "# Exercise 17.3: seconds of both ways",
        "to_experts": "# Exercise 17.4: tokens to experts, and home again",
    },
}
