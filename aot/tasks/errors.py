"""What goes wrong with tasks: who runs them fails, is not there, or is not what was asked for."""

from __future__ import annotations

from aotc.aot.errors import TuneError
from aotc.runtime.errors import AotcError


class TaskError(AotcError):
    """What runs the tasks failed, not the task: never taken for a kernel that does not compile."""

    code = "task"
    exit_code = 4


class TaskFileMissing(TaskError):
    """A task that `aotc measure` was given is not there."""

    exit_code = 2
    template = "no task at `{path}`"
    hint = "a task is a file that `aotc tune --tasks-to DIR` wrote, or a folder of them"


class ClusterExtraMissing(TaskError):
    """`--ray` was given where Ray is not installed."""

    exit_code = 7
    template = "`ray` is not installed, `--ray` needs it"
    hint = 'pip install "aotc[ray]"; in a checkout of aotc: pip install ".[ray]"'


class ClusterUnreachable(TaskError):
    """No Ray cluster that this process fits answers at the address of `--ray`."""

    exit_code = 7
    template = "no Ray cluster at `{address}`: {detail}"
    hint = "start one with `ray start --head`, and give the address that it prints"


class ClusterDiffers(TaskError):
    """A node has other versions, so that its code would be another compiler's."""

    exit_code = 5
    template = "found {found} on the node {node}, expected {expected} as here"
    hint = "install the same versions on every node"


class ClusterDeviceMissing(TaskError):
    """The cluster has nothing of what a task needs."""

    exit_code = 7
    template = "the cluster has no {expected}; it has {found}"
    hint = (
        "start the node with its devices as a resource: "
        """`ray start --resources='{{"aotc:NAME": 1}}'`, NAME as `aotc doctor` prints it"""
    )


class ClusterDevicesSeveral(TaskError):
    """Devices of several names run the target, and a record's line is about one."""

    exit_code = 2
    template = "the cluster has {found} for `{needs}`, expected one kind of device"
    hint = "name one with `--on`"


class ClusterTaskLost(TaskError):
    """A task's node or Ray worker died, as often as it was tried."""

    template = "task `{task}` was lost on the cluster, tried up to {tries} times: {detail}"
    hint = "check the memory and the other work of the nodes, then start again"


class TasksWritten(TaskError):
    """What is to be measured was written, and no bundle: so `aotc tune --tasks-to` ends."""

    template = "{count} tasks are in `{folder}`"
    hint = "`aotc measure {folder} -o RESULTS` where the device is, then `--results-from RESULTS`"


class ResultsMissing(TaskError):
    """A folder of results lacks those of some tasks."""

    template = "`{folder}` lacks the results of {count} tasks, `{first}` for one"
    hint = "write the tasks with `--tasks-to`, and run `aotc measure` on them"


class DeviceDiffers(TuneError):
    """Kernels were to be measured on a device of one name, and this machine has others."""

    template = "found {found} here, expected the device `{expected}`"
    hint = "measure where it is; `aotc doctor` prints a machine's devices"
