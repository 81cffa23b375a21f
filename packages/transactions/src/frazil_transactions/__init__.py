"""Where transactions of the source end in a topic, so that no batch ends inside of one."""
