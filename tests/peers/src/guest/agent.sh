#!/bin/bash
# First process of the root file system. Takes commands from the host over a virtio-serial port,
# one per line (backslash and newline escaped), runs each with its output going back over the
# port, and ends each with a record separator, the exit status and a newline.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=linux
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t configfs configfs /sys/kernel/config
mount -t debugfs debugfs /sys/kernel/debug
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
echo weft-guest >/proc/sys/kernel/hostname
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
dmesg -n 7 # from here on the console file shows what the kernel says
cd /root
for word in $(</proc/cmdline); do
    case $word in
    weft.share) mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 share /share && cd /share ;;
    weft.modprobe=*)
        modules=${word#*=}
        modprobe -a ${modules//,/ }
        ;;
    weft.columns=*) columns=${word#*=} ;;
    weft.shell=*)
        shell="stty rows ${word#*=} cols $columns sane; exec bash -l"
        setsid --ctty --wait bash -c "$shell" </dev/hvc0 >/dev/hvc0 2>&1
        busybox reboot -f
        ;;
    esac
done
for port in /sys/class/virtio-ports/*; do
    read -r name <"$port/name" && [ "$name" = weft ] && exec 3<>"/dev/${port##*/}"
done
printf '\036%d\n' 0 >&3
while IFS= read -r line <&3; do
    printf -v script %b "$line"
    bash -c "$script" </dev/null >&3 2>&1 3>&-
    printf '\036%d\n' $? >&3
done
