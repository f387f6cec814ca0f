# pr.py DEVICE COMMAND [KEY] [NEW-KEY] [TYPE]: what blkpr does, by the kernel's own calls for persistent
# reservations of block devices (linux/pr.h). TYPE 1: write exclusive; 4: exclusive access,
# registrants only.
import fcntl
import struct
import sys


def call(number, layout, *values):
    data = struct.pack(layout, *values)
    return (1 << 30) | (len(data) << 16) | (ord("p") << 8) | number, data


device, command, *rest = sys.argv[1:]
key, new, kind = ([int(word, 0) for word in rest] + [0, 0, 0])[:3]
request, data = {
    "register": lambda: call(200, "=QQII", key, new, 0, 0),
    "reserve": lambda: call(201, "=QII", key, kind, 0),
    "release": lambda: call(202, "=QII", key, kind, 0),
    "preempt": lambda: call(203, "=QQII", key, new, kind, 0),
    "clear": lambda: call(205, "=QII", key, 0, 0),
}[command]()
with open(device, "rb") as opened:
    # Only with something mutable it returns what the call does: the status of the device.
    status = fcntl.ioctl(opened, request, bytearray(data))
if status != 0:
    sys.exit(f"{command}: status {status:#x}")
