"""Why a job waits in Slurm, in words, and what to change where it would wait for ever."""

WORDS = {
    "BeginTime": "Slurm starts it a little later",
    "Cleaning": "its last attempt is ending",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held; `scontrol release` frees it",
    "Licenses": "its licenses are in use",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "Priority": "jobs with a higher priority come first",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved",
    "Reservation": "its reservation has not begun",
    "Resources": "the nodes are busy",
}
NEVER = {
    "AccountNotAllowed": ("its partition refuses its account", "--partition or SBATCH_ACCOUNT"),
    "BadConstraints": (
        "no node has what it asks for",
        "--gpus, --cpus, --memory or SBATCH_CONSTRAINT",
    ),
    "InvalidAccount": ("its account is not known", "SBATCH_ACCOUNT"),
    "InvalidQOS": ("its QOS is not known", "SBATCH_QOS"),
    "PartitionConfig": (
        "no node of its partition has what it asks for",
        "--gpus, --cpus, --memory or --partition",
    ),
    "PartitionNodeLimit": (
        "its partition has fewer nodes, or some are down",
        "--nodes or --partition",
    ),
    "PartitionTimeLimit": ("its partition has a shorter time limit", "--time or --partition"),
    "QOSNotAllowed": ("its partition refuses its QOS", "--partition or SBATCH_QOS"),
}


def in_words(reason: str) -> str:
    """Slurm's reason why a job waits, such as `its partition is down (PartitionDown)`.

    A reason without words of ours stays as it is. Empty where Slurm gives none.
    """
    if reason in ("", "None"):
        return ""
    word = key_of(reason)
    known = WORDS.get(word) or NEVER.get(word, ("",))[0]
    return f"{known} ({word})" if known else reason


def never_starts(reason: str) -> str:
    """What to change for a job that cannot start as it is; empty where it may start."""
    return NEVER.get(key_of(reason), ("", ""))[1]


def key_of(reason: str) -> str:
    """The reason's name: Slurm may list nodes after it, `ReqNodeNotAvail, UnavailableNodes:n1`."""
    return reason.partition(",")[0]
