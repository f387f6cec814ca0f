# weft's target inside the guest, on a block device whose counters show its requests, and the
# kernel's host beside it: one function a step. The device is a loop over a file in memory: it
# has a volatile write cache and no FUA, so that a durable write shows as a flush.
. /share/lib.sh

ADDRESS=127.0.0.1
PORT=4420
DISK=/dev/loop0

disk() {
    truncate -s 128M /tmp/disk
    expect "first loop device" "$(losetup --find)" $DISK
    losetup --sector-size 4096 $DISK /tmp/disk
    expect "write cache" "$(cat /sys/block/loop0/queue/write_cache)" "write back"
}

# The target on the disk.
start() {
    fresh
    serve_inside --listen tcp://$ADDRESS:$PORT --nqn "$NQN" --block $DISK
}

stop() {
    end_target
}

# counter N: a field of the disk's statistics: 12 discards, 16 flushes
counter() {
    awk "{ print \$$1 }" /sys/block/loop0/stat
}

# rises N LEAST COMMAND...: a field rises by at least LEAST during a command
rises() {
    local field=$1 least=$2 before after
    shift 2
    before=$(counter "$field")
    "$@"
    after=$(counter "$field")
    echo "field $field: $before, $after after $*"
    [ $((after - before)) -ge "$least" ] || fail "field $field rose by less than $least"
}

flush() {
    start
    connect
    local device
    device=$(namespace 1)
    five() { for _ in 1 2 3 4 5; do nvme flush "$device" -n 1; done; }
    rises 16 5 five
    # A write without FUA is not flushed.
    local before
    before=$(counter 16)
    dd if=/dev/zero of="$device" bs=4k count=64 oflag=direct status=none
    expect "flushes without a reason" "$(($(counter 16) - before))" 0
    rises 16 15 fio --name=sync --filename="$device" --ioengine=psync --rw=write --bs=4k --size=64k \
        --fsync=1 --output-format=terse --output=/tmp/fio.out
    disconnect
    stop
    kernel_is_content
}

fua() {
    start
    connect
    local device
    device=$(namespace 1)
    expect fua "$(cat "/sys/block/${device##*/}/queue/fua")" 1
    rises 16 8 dd if=/dev/zero of="$device" bs=4k count=8 oflag=direct,dsync status=none
    disconnect
    stop
}

discard() {
    start
    connect
    local device full
    device=$(namespace 1)
    dd if=/dev/urandom of="$device" bs=1M count=16 oflag=direct status=none
    full=$(stat -c %b /tmp/disk)
    rises 12 1 blkdiscard -o 0 -l $((8 << 20)) "$device"
    all_zero "$device" 0 8 || fail "discarded blocks are not zero"
    [ $((full - $(stat -c %b /tmp/disk))) -ge $(((8 << 20) / 512)) ] || fail "nothing was freed"
    blkdiscard -z -o $((8 << 20)) -l $((4 << 20)) "$device"
    all_zero "$device" 8 4 || fail "zeroed blocks are not zero"
    all_zero "$device" 12 4 && fail "too much is zero"
    disconnect
    stop
    kernel_is_content
}

data() {
    start
    connect
    verified "$(namespace 1)" --size=8M --bsrange=4k-256k --iodepth=32 --name=block
    disconnect
    stop
    kernel_is_content
}

# Where io_uring is forbidden the target uses the epoll driver, and logs that once.
forbidden() {
    echo 2 >/proc/sys/kernel/io_uring_disabled
    unset WEFT_DRIVER
    ENGINE=libaio data
    echo 0 >/proc/sys/kernel/io_uring_disabled
    cat $LOG
    expect "lines about it" "$(grep -c -i io_uring $LOG)" 1
}
