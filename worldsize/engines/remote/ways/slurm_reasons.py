"""squeue's reasons for which a job would wait for ever, and what to do about each.

From https://slurm.schedmd.com/job_reason_codes.html, without reasons that pass, such as Resources and Priority.
"""

import re

_ASK_LESS = "Ask for less, or in a partition or QOS that allows it: see `sacctmgr show qos`, `scontrol show partition`."
_ADVICE = {
    r"PartitionDown|PartitionInactive": "That partition starts no job: choose another (slurm_partition=…; `sinfo` "
    "shows which are up), or ask who runs the cluster.",
    r"PartitionTimeLimit": "The time limit is above the partition's: give a lower timeout_min (`sinfo -o '%P %l'` "
    "shows the limits).",
    r"PartitionNodeLimit": "The partition does not give one job that many nodes: ask for fewer (nodes=…), or choose "
    "another (slurm_partition=…).",
    r"PartitionConfig|BadConstraints": "The partition has no such nodes, or too few: see `sinfo -N -l`.",
    r"(QOS|Assoc)Max\w*Per(Job|Node)\w*": _ASK_LESS,
    r"(QOS|Assoc)Max\w*Per(User|Account)\w*": f"That is more than this user or account may have at a time. {_ASK_LESS}",
    r"(QOS|Assoc)(Max(Wall|TRESMins|CpuMinutes)\w*|Grp\w*Minutes\w*)": _ASK_LESS,
    r"QOSTimeLimit|QOSMin\w+|AssociationTimeLimit|QOSUsageThreshold": _ASK_LESS,
    r"AccountNotAllowed|InvalidAccount|QOSNotAllowed|InvalidQOS|AccountingPolicy": "This user may not have that "
    "account or QOS: give others (slurm_account=…, slurm_qos=…; `sacctmgr show assoc user=$USER` lists them).",
    r"JobHeldUser|JobHeldAdmin|JobHoldMaxRequeue": "The job is held: release it with `scontrol release` if you may.",
    r"DependencyNeverSatisfied": "The job that it depends on has failed: leave slurm_dependency out.",
    r"ReservationDeleted|Reservation(Invalid|Unusable)|InvalidReservation": "The reservation is gone: leave it out.",
    r"Licenses?Invalid": "This cluster has no such licence: leave it out.",
}


def advice(reason: str) -> str:
    """Return what to do about a reason that waiting does not change; "" for a reason that may pass."""
    for pattern, what_to_do in _ADVICE.items():
        if re.fullmatch(pattern, reason):
            return what_to_do
    return ""
