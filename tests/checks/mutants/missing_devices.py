"""Exercise 8.1: which devices are not there."""

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("missing_devices")


@answers.is_right
def asks_a_variable_on_each(devices):
    found = []
    for name in devices:
        with tf.device(name):
            where = tf.DeviceSpec.from_string(tf.Variable(0.0).device)
        asked = tf.DeviceSpec.from_string(name)
        if (where.device_type, where.device_index) != (asked.device_type, asked.device_index):
            found.append(name)
    return found


@answers.is_right
def asks_a_mirrored_variable(devices):
    with tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice()).scope():
        variable = tf.Variable(0.0)
    copies = [tf.DeviceSpec.from_string(copy.device) for copy in getattr(variable, "values", (variable,))]
    asked = [tf.DeviceSpec.from_string(name) for name in devices]
    return [
        name
        for name, want, got in zip(devices, asked, copies, strict=True)
        if (want.device_type, want.device_index) != (got.device_type, got.device_index)
    ]


@answers.is_right
def lets_placement_be_hard(devices):
    tf.config.set_soft_device_placement(False)
    found = []
    for name in devices:
        try:
            with tf.device(name):
                tf.constant(0.0) + 1.0
        except (tf.errors.InvalidArgumentError, RuntimeError):
            found.append(name)
    return found


@answers.is_right
def by_a_pattern(devices):
    import re

    there = {d.name.lower().rpartition("device:")[2] for d in tf.config.list_logical_devices()}
    return [name for name in devices if re.findall(r"[a-z]+:\d+$", name.lower())[0] not in there]


@answers.is_right
def by_specs(devices):
    def which(name):
        spec = tf.DeviceSpec.from_string(name)
        return spec.device_type, spec.device_index

    there = [which(device.name) for device in tf.config.list_logical_devices()]
    return list(filter(lambda name: which(name) not in there, devices))


@answers.is_right
def a_generator(devices):
    yield from by_specs(devices)


@answers.is_right
def reads_the_three_spellings_of_the_text(devices):
    there = [device.name for device in tf.config.list_logical_devices()]

    def listed(name):
        if name.startswith("/device:"):
            return name
        kind, number = name.removeprefix("/").split(":")
        return f"/device:{kind.upper()}:{number}"

    return [name for name in devices if listed(name) not in there]


@answers.is_wrong("GPU:", "does not exist", "num_replicas_in_sync still counts the device")
def trusts_the_number_of_replicas(devices):
    strategy = tf.distribute.MirroredStrategy(devices)
    return devices[strategy.num_replicas_in_sync :]


@answers.is_wrong("exists, but you call it missing", "list_physical_devices knows only one CPU")
def asks_for_physical_devices(devices):
    there = [d.name.rpartition("device:")[2] for d in tf.config.list_physical_devices()]
    return [name for name in devices if name.rpartition("device:")[2].lstrip("/").upper() not in there]


answers.mistake("looks_at_the_kind_alone", {
    "(where.device_type, where.device_index) != (asked.device_type, asked.device_index)":
        "where.device_type != asked.device_type",
}, "does not exist", "check for each device where a variable really is")


@answers.is_wrong("exists, but you call it missing", "It is another spelling of CPU:0")
def compares_the_text(devices):
    there = [d.name for d in tf.config.list_logical_devices()]
    return [name for name in devices if name not in there and f"/device:{name}" not in there]


answers.mistake("says_which_are_there", {" != (asked": " == (asked"}, "CPU:0 exists, but you call it missing")
answers.mistake("stops_at_the_first", {"found.append(name)": "return [name]"},
    "expected ['GPU:0', 'GPU:1'], got the first of them alone: look at every name of the list")


@answers.is_wrong("devices was changed in place: the caller still needs it unchanged")
def takes_those_that_are_there_out_of_the_list(devices):
    there = by_specs(devices)
    for name in [*devices]:
        if name not in there:
            devices.remove(name)
    return devices


answers.mistake("answers_yes_or_no", {"return found": "return bool(found)"}, "expected a list of names", "got False")


@answers.is_wrong("CPU:2", "does not exist")
def compares_the_last_digit(devices):
    there = {(d.device_type, d.name[-1]) for d in tf.config.list_logical_devices()}
    return [name for name in devices if (tf.DeviceSpec.from_string(name).device_type, name[-1]) not in there]


@answers.is_wrong("GPU:10", "does not exist")
def reads_the_last_five_letters(devices):
    there = {d.name[-5:] for d in tf.config.list_logical_devices()}
    return [name for name in devices if name[-5:].upper() not in there]


@answers.is_wrong("spelled and ordered as in the list")
def loses_the_order_in_a_set(devices):
    return list(set(by_specs(devices)))


answers.mistake("spells_them_out",
    {"found.append(name)": 'found.append(f"/device:{asked.device_type}:{asked.device_index}")'},
    "spelled and ordered as in the list")
answers.mistake("compares_the_numbers_alone", {
    "asked = tf.DeviceSpec.from_string(name)": "",
    "(where.device_type, where.device_index) != (asked.device_type, asked.device_index)":
        "where.device_index != tf.DeviceSpec.from_string(name).device_index",
}, "GPU:0 does not exist", "check for each device where a variable really is")


@answers.is_wrong("exists, but you call it missing", "list_logical_devices spells it /device:CPU:0")
def looks_for_the_name_in_the_list(devices):
    return [name for name in devices if name not in [d.name for d in tf.config.list_logical_devices()]]
