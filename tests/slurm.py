"""A real Slurm for tests: slurmctld and two nodes on this machine, with ports of their own."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import reserved_port
from tests.processes import parent_of, run_program

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch")
PLACES = f"{os.environ['PATH']}:/usr/sbin:/sbin"
MISSING = [name for name in PROGRAMS if shutil.which(name, path=PLACES) is None]
needs_slurm = pytest.mark.skipif(
    bool(MISSING),
    reason=f"no Slurm here ({', '.join(MISSING)}): apt install munge slurmctld slurmd slurm-client",
)

# Jobs of `low` make room for those of `high`. A job that is queued again waits for `cred_expire`.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=6
KillWait=20
ReturnToService=2
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs=2 RealMemory=500
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs=2 RealMemory=500
PartitionName=low Nodes=ALL Default=YES PriorityTier=1
PartitionName=high Nodes=ALL PriorityTier=10
PartitionName=short Nodes=ALL MaxTime=2
"""


class SlurmCluster:
    """The folder of a running Slurm, and its nodes by name."""

    def __init__(self, folder):
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.environment = os.environ | {"SLURM_CONF": str(self.configuration), "PATH": PLACES}
        self.processes = {}

    def start(self, ports):
        (self.folder / "state").mkdir()
        names = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": self.folder}
        self.text = CONFIGURATION.format(**ports, **names)
        self.configuration.write_text(self.text)
        key = self.folder / "munge.key"
        self.run("mungekey", "--create", f"--keyfile={key}")
        files = {"key-file": key, "socket": self.folder / "munge.socket",
                 "pid-file": self.folder / "munge.pid", "log-file": self.folder / "munge.log",
                 "seed-file": self.folder / "munge.seed"}  # fmt: skip
        words = [f"--{name}={path}" for name, path in files.items()]
        self.start_one("munged", "munged", "--foreground", "--force", *words)
        wait(lambda: (self.folder / "munge.socket").exists())
        self.start_controller()
        for node in ("one", "two"):
            self.start_node(node)
        wait(lambda: self.run("sinfo", "--noheader", "--Node", "--partition=low",
                              "--format=%T").split() == ["idle", "idle"])  # fmt: skip

    def start_one(self, name, *command):
        with open(self.folder / f"{name}.out", "ab") as output:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip

    def start_controller(self, *settings):
        """Start slurmctld, with more settings than usually."""
        self.configuration.write_text("\n".join([self.text, *settings, ""]))
        self.start_one("slurmctld", "slurmctld", "-D")
        wait(lambda: self.has_answered("scontrol", "ping"))

    def stop_controller(self):
        """End slurmctld, which first saves what it knows."""
        process = self.processes.pop("slurmctld")
        process.terminate()
        process.wait()

    @contextmanager
    def restarted_with(self, *settings):
        """While entered, slurmctld has more settings than usually."""
        self.stop_controller()
        self.start_controller(*settings)
        try:
            yield
        finally:
            self.stop_controller()
            self.start_controller()

    @contextmanager
    def partition_state(self, partition, state):
        """While entered, a partition is in this state: DOWN, DRAIN."""
        self.run("scontrol", "update", f"PartitionName={partition}", f"State={state}")
        try:
            yield
        finally:
            self.run("scontrol", "update", f"PartitionName={partition}", "State=UP")

    def start_node(self, node):
        self.start_one(node, "slurmd", "-D", "-N", node)

    def run(self, *command):
        return run_program(command, env=self.environment).stdout

    def has_answered(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True).returncode == 0

    def kill_node(self, node):
        """Kill all processes of a node at once, as a power cut does."""
        found = [self.processes.pop(node), *self.job_processes(node)]
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one if isinstance(one, int) else one.pid, signal.SIGKILL)
        found[0].wait()

    def job_processes(self, node=""):
        """Processes of jobs on a node (without a name: on all), slurmstepd before them."""
        wanted = f"SLURM_CONF={self.configuration}".encode(), f"SLURMD_NODENAME={node}".encode()
        jobs = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                if wanted[0] in variables and any(one.startswith(wanted[1]) for one in variables):
                    jobs.append(int(folder.name))
        parents = {parent for job in jobs for parent in parents_of(job)} - set(jobs)
        return [one for one in parents if command_of(one).startswith("slurmstepd")] + jobs

    def stop(self):
        for one in (self.job_processes(), [one.pid for one in self.processes.values()]):
            for pid in one:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()


def parents_of(pid):
    """Its parent; none where it has ended."""
    with suppress(OSError):
        return [parent_of(pid)]
    return []


def command_of(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def wait(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "Slurm did not start"
        time.sleep(0.05)


@contextmanager
def slurm_on_this_machine(folder):
    """A `SlurmCluster` with both nodes idle."""
    made = SlurmCluster(folder)
    with ExitStack() as stack:
        ports = {name: stack.enter_context(reserved_port()) for name in ("port", "one", "two")}
        stack.callback(made.stop)
        made.start(ports)
        yield made
