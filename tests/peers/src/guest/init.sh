#!/bin/busybox sh
# First process of the initramfs: loads what the root file system needs, mounts it, goes on there.
alias mount='/bin/busybox mount'
mount -t devtmpfs dev /dev
while read -r module; do
    /bin/busybox insmod "/modules/$module" || echo "weft-guest: cannot load $module" >/dev/console
done </modules/order
until [ -b /dev/vda ]; do /bin/busybox usleep 2000; done
mount -t ext4 -o noatime /dev/vda /root || exit 1 # the end of process 1 is a panic and ends QEMU
mount --move /dev /root/dev
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
for folder in run tmp; do mount -t tmpfs $folder /root/$folder; done
exec /bin/busybox switch_root /root /usr/sbin/weft-agent
