#!/bin/busybox sh
# First and only process of a guest of Arm: it becomes weft. Its end is a panic, which ends QEMU.
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
while read -r module; do
    /bin/busybox insmod "/modules/$module" || echo "cannot load $module"
done </modules/order
until [ -e /sys/class/net/eth0 ]; do /bin/busybox usleep 2000; done
/bin/busybox ip link set lo up
/bin/busybox ip address add 10.0.2.15/24 dev eth0
/bin/busybox ip link set eth0 up
/bin/busybox ip route add default via 10.0.2.2
/bin/busybox uname -a
exec /bin/weft ARGUMENTS
