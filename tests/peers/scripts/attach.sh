# weft's host in the guest as a block device of its kernel (ublk), weft's target outside.
. /share/lib.sh

DEVICE=/dev/ublkb0
LOG=/share/attach.log

address() {
    echo "nvme-tcp://$ADDRESS:$PORT/$NQN?nsid=$1"
}

# run NSID [OPTIONS...]: weft attach in the background
run() {
    local nsid=$1
    shift
    background "$(address "$nsid")" --keep-alive-tmo 5 --ctrl-loss-tmo 120 "$@"
}

# background ADDRESS [OPTIONS...]: leaves its number and, when it has ended, its status
background() {
    rm -f /tmp/status /tmp/attach.pid
    setsid bash -c '"$0" attach "$@" & echo $! >/tmp/attach.pid; wait $!; echo $? >/tmp/status' \
        $WEFT "$@" --reconnect-delay 1 </dev/null >>$LOG 2>&1 &
    within 10 test -s /tmp/attach.pid
}

# is_served: the process that was started last serves the device
is_served() {
    grep -q "$DEVICE is " $LOG && kill -0 "$(cat /tmp/attach.pid)"
}

# attach NSID [OPTIONS...]: the same, waiting for the device
attach() {
    : >$LOG
    run "$@"
    within 30 is_served
    test -b $DEVICE
}

# Removes what an earlier step has left.
clean() {
    fresh
    rm -f /tmp/load.pid
    [ -e /dev/ublkc0 ] && $WEFT detach --force $DEVICE
    modprobe ublk_drv
}

has_ended() {
    [ -s /tmp/status ]
}

# ended: the process has ended by itself, and the device is gone
ended() {
    within 30 has_ended
    [ ! -e $DEVICE ] && [ ! -e /dev/ublkc0 ] || fail "the device is still there"
    expect status "$(cat /tmp/status)" 0
}

stop() {
    kill -TERM "$(cat /tmp/attach.pid)"
    ended
}

# refuses_shortly TEXT COMMAND...: and with nothing else
refuses_shortly() {
    refuses "$@"
    expect lines "$(wc -l </tmp/said)" 1
}

missing() {
    clean
    rmmod ublk_drv
    refuses_shortly 'modprobe ublk_drv' $WEFT attach "$(address 1)"
    refuses_shortly 'modprobe ublk_drv' $WEFT detach 0
    modprobe ublk_drv
    refuses_shortly 'root alone' setpriv --reuid=65534 --clear-groups $WEFT attach "$(address 1)"
    refuses_shortly 'there is no device /dev/ublkb7' $WEFT detach 7
    refuses_shortly 'there is no device /dev/ublkb7' $WEFT attach "$(address 1)" --recover 7
    refuses_shortly 'namespace 9 does not exist' $WEFT attach "$(address 9)"
}

# queue NAME: an attribute of the device's queue
queue() {
    cat /sys/block/ublkb0/queue/"$1"
}

geometry() {
    clean
    attach 2 --id 0 --nr-io-queues 2
    expect "block size" "$(blockdev --getss $DEVICE)" 4096
    has_size $DEVICE $((96 << 20)) || fail "size of namespace 2"
    expect cache "$(queue write_cache)" "write back"
    expect fua "$(queue fua)" 1
    [ "$(queue discard_max_bytes)" -gt 0 ] || fail "nothing can be discarded"
    [ "$(queue write_zeroes_max_bytes)" -gt 0 ] || fail "nothing can be zeroed"
    expect queues "$(ls /sys/block/ublkb0/mq | wc -l)" 2
    refuses_shortly 'is there already' $WEFT attach "$(address 1)" --id 0
    stop
    attach 1
    expect "block size" "$(blockdev --getss $DEVICE)" 512
    stop
    kernel_is_content
}

# data [OPTIONS...]
data() {
    clean
    attach 2 "$@"
    verified $DEVICE --size=4M --bsrange=4k-1m --iodepth=32 --name=one --name=two --offset=32M
    dd if=/dev/urandom of=$DEVICE bs=1M count=16 oflag=direct status=none
    blkdiscard -o 0 -l $((8 << 20)) $DEVICE
    all_zero $DEVICE 0 8 || fail "discarded blocks are not zero"
    blkdiscard -z -o $((8 << 20)) -l $((4 << 20)) $DEVICE
    all_zero $DEVICE 8 4 || fail "zeroed blocks are not zero"
    all_zero $DEVICE 12 4 && fail "too much is zero"
    fio --name=sync --filename=$DEVICE --ioengine=psync --rw=write --bs=4k --size=64k --fsync=1 \
        --output=/tmp/fio.out
    dd if=/dev/zero of=$DEVICE bs=4k count=8 oflag=direct,dsync status=none
    stop
    kernel_is_content
}

# The same with queue pairs for small requests.
express() {
    data --express
}

# sums: of all files
sums() {
    (cd /mnt && find . -type f -print0 | sort -z | xargs -0 md5sum)
}

file_system() {
    clean
    attach 2
    mkfs.ext4 -q $DEVICE
    mount $DEVICE /mnt
    cp -r /usr/share/bash* /usr/lib/x86_64-linux-gnu/libc.so.6 /mnt
    sums >/tmp/before
    [ -s /tmp/before ] || fail "no files"
    # In use: it goes on until it is not.
    refuses_shortly 'is in use' $WEFT detach $DEVICE
    kill -TERM "$(cat /tmp/attach.pid)"
    within 10 grep -q 'is in use: waiting' $LOG
    dd if=/dev/urandom of=/mnt/late bs=64k count=4 conv=fsync status=none
    sums >/tmp/before
    umount /mnt
    ended
    attach 2
    mount $DEVICE /mnt
    sums | diff /tmp/before -
    umount /mnt
    fsck.ext4 -fn $DEVICE
    $WEFT detach $DEVICE
    ended
    kernel_is_content
}

start_load() {
    fio_apart --name=load --filename=$DEVICE --direct=1 --ioengine=io_uring --rw=randwrite --bs=4k \
        --size="${LOAD_SIZE:-5M}" --iodepth=32 --rate=1m,1m --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --output=/tmp/load.out </dev/null >/dev/null 2>&1 &
    echo $! >/tmp/load.pid
    sleep 2
    kill -0 "$(cat /tmp/load.pid)"
}

# The process is killed under load, twice, and another one serves the device: fio sees a pause.
recovery() {
    clean
    attach 2
    start_load
    for _ in 1 2; do
        kill -KILL "$(cat /tmp/attach.pid)"
        sleep 1
        refuses_shortly 'is another namespace' $WEFT attach "$(address 1)" --recover 0
        refuses_shortly 'nothing serves' $WEFT detach $DEVICE
        : >$LOG
        run 2 --recover 0
        within 30 is_served
        refuses_shortly 'is served by process' $WEFT attach "$(address 2)" --recover 0
        sleep 1
    done
    load_ended 120
    stop
    kernel_is_content
}

# A dead device is given up: what waits fails.
given_up() {
    clean
    attach 2
    kill -KILL "$(cat /tmp/attach.pid)"
    within 10 has_ended
    dd if=/dev/zero of=$DEVICE bs=4k count=1 oflag=direct >/tmp/dd.out 2>&1 &
    local writer=$!
    sleep 1
    kill -0 $writer || fail "the write has not waited"
    $WEFT detach --force $DEVICE
    wait $writer && fail "the write has succeeded"
    [ ! -e $DEVICE ] || fail "the device is still there"
}

# loaded NSID [OPTIONS...]: attached, with a load that goes on
loaded() {
    clean
    attach "$@"
    start_load
}

finished() {
    load_ended 120
    stop
}

# two_paths PORT: attached by both ports, with a load
two_paths() {
    clean
    : >$LOG
    local both="nvme-tcp://$ADDRESS:$PORT,$ADDRESS:$1/$NQN?nsid=2"
    background "$both" --keep-alive-tmo 2
    within 30 is_served
    start_load
}

# The study that puts the device beside the kernel's own host over the same target.
beside_linux() {
    clean
    attach 2
    $WEFT study run attach --target "$(address 2)" --local $DEVICE --seed 7 --quiet \
        --set transport=local,tcp --runtime 2s --ramp-time 300ms --repeats 3 --out /share/beside \
        --output-format json >/share/beside.json
    stop
    kernel_is_content
}

before_resize() {
    clean
    attach 2
    mkfs.ext4 -q $DEVICE
    mount $DEVICE /mnt
}

# resized BYTES: the device gets this size while it is mounted
resized() {
    within 10 has_size $DEVICE "$1"
    resize2fs $DEVICE
    fallocate -l 100M /mnt/large # more than there was
    dd if=/dev/urandom of=/mnt/large bs=1M seek=97 count=3 conv=notrunc,fsync status=none
    umount /mnt
    fsck.ext4 -fn $DEVICE
}

not_resized() {
    clean
    attach 2
}

# says_not_resized BYTES: the size stays, and a new device has this one
says_not_resized() {
    within 10 grep -q 'before Linux 6.16' $LOG
    has_size $DEVICE $((96 << 20)) || fail "the size has changed"
    stop
    attach 2
    has_size $DEVICE "$1" || fail "the size is the old one"
    stop
}
