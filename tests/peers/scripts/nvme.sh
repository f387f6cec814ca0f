# weft's target inside the guest on the namespaces of an emulated NVMe SSD without the block layer,
# and the kernel's host beside it: one function a step. Namespace 1 has blocks of 4 KiB, 2 has
# protection information, 3 has other metadata, and block 100 of 4 can be neither read nor written.
. /share/lib.sh

export WEFT_DRIVER=uring # no other has the commands
ADDRESS=127.0.0.1
PORT=4420
TRACE=/sys/kernel/tracing

# block NSID: the SSD's block device of a namespace, by whose number it is not always named
block() {
    local path
    for path in /sys/block/nvme0n*; do
        [ "$(cat "$path/nsid")" = "$1" ] && echo "/dev/${path##*/}" && return 0
    done
    return 1
}

# raw NSID: the same without the block layer
raw() {
    local block
    block=$(block "$1")
    echo "${block/nvme/ng}"
}

there() {
    local nsid
    for nsid in 1 2 3 4; do
        test -b "$(block $nsid)" && test -c "$(raw $nsid)" || return 1
    done
}

prepare() {
    within 10 there
    mountpoint -q $TRACE || mount -t tracefs none $TRACE
}

# same NAME: a value of two JSON files, by the same name
same() {
    local ours theirs
    ours=$(jq -r ".$1" /tmp/ours.json)
    theirs=$(jq -r ".$1" /tmp/theirs.json)
    [ "$ours" != null ] || fail "$1 is missing"
    expect "$1" "$(echo $ours)" "$(echo $theirs)"
}

# What nvme-cli says of the device is what weft says.
identified() {
    local name
    $WEFT identify "$(raw 1)" -o json >/tmp/ours.json
    nvme id-ctrl /dev/nvme0 -o json >/tmp/theirs.json
    for name in vid ssvid sn mn fr cntlid mdts ver oacs elpe nn oncs vwc subnqn; do
        same $name
    done
    $WEFT identify ns "$(raw 2)" -o json >/tmp/ours.json
    nvme id-ns /dev/nvme0 -n 2 -o json >/tmp/theirs.json
    for name in nsze ncap nuse nlbaf flbas mc dpc dps dlfeat; do
        same $name
    done
    $WEFT log smart "$(raw 1)" -o json >/tmp/ours.json
    nvme smart-log /dev/nvme0 -o json >/tmp/theirs.json
    for name in critical_warning temperature avail_spare percent_used media_errors power_cycles; do
        same $name
    done
    $WEFT identify "$(raw 1)" >/tmp/said
    cat /tmp/said
    grep -q 'mn  *: QEMU' /tmp/said
}

# start NSID...: the target with these namespaces of the SSD
start() {
    local devices=() nsid
    for nsid in "$@"; do
        devices+=(--block "$(raw "$nsid")")
    done
    fresh
    serve_inside --listen tcp://$ADDRESS:$PORT --nqn "$NQN" "${devices[@]}"
    connect
}

stop() {
    disconnect
    end_target
}

# Data of a host are those that the block layer finds, in both formats.
data() {
    start 1 2
    local nsid device sum
    for nsid in 1 2; do
        device=$(namespace $nsid)
        expect "block size" "$(blockdev --getss "$device")" 4096
        has_size "$device" "$(blockdev --getsize64 "$(block $nsid)")" || fail "size of $nsid"
        verified "$device" --size=8M --bsrange=4k-1m --iodepth=16 --name=block
        dd if=/dev/urandom of="$device" bs=1M count=16 oflag=direct conv=fsync status=none
        blkdiscard -z -o 0 -l $((4 << 20)) "$device"
        all_zero "$device" 0 4 || fail "zeroed blocks are not zero"
        sum=$(dd if="$device" bs=1M count=16 iflag=direct status=none | md5sum)
        expect "data of $nsid" "$sum" \
            "$(dd if="$(block $nsid)" bs=1M count=16 iflag=direct status=none | md5sum)"
        blkdiscard -o $((4 << 20)) -l $((4 << 20)) "$device"
        dd if="$device" of=/dev/null bs=1M count=16 iflag=direct status=none
    done
    mkfs.ext4 -q "$(namespace 1)"
    fsck.ext4 -fn "$(namespace 1)"
    stop
    kernel_is_content
}

# commanded PATTERN LEAST COMMAND...: during the command the SSD gets so many commands like this
commanded() {
    local pattern=$1 least=$2 found
    shift 2
    : >$TRACE/trace
    "$@"
    found=$(grep -cE "$pattern" $TRACE/trace || true)
    echo "$found of '$pattern' after $*"
    [ "$found" -ge "$least" ] || { tail -n 20 $TRACE/trace; fail "less than $least"; }
}

# Each request of the host reaches the SSD as the command that the specification has for it.
commands() {
    start 1
    local device event=$TRACE/events/nvme/nvme_setup_cmd
    device=$(namespace 1)
    expect fua "$(cat "/sys/block/${device##*/}/queue/fua")" 1
    echo 'ctrl_id == 0 && qid > 0' >$event/filter
    echo 1 >$event/enable
    commanded 'nvme_cmd_write .*len=0, ctrl=0x0,' 8 \
        dd if=/dev/zero of="$device" bs=4k count=8 oflag=direct status=none
    commanded 'nvme_cmd_write .*ctrl=0x4000,' 8 \
        dd if=/dev/zero of="$device" bs=4k count=8 oflag=direct,dsync status=none
    commanded 'nvme_cmd_flush' 1 nvme flush "$device" -n 1
    commanded 'nvme_cmd_write_zeroes slba=0,' 1 blkdiscard -z -o 0 -l $((4 << 20)) "$device"
    commanded 'nvme_cmd_dsm ' 1 blkdiscard -o 0 -l $((4 << 20)) "$device"
    commanded 'nvme_cmd_read .*slba=16, len=31,' 1 \
        dd if="$device" of=/dev/null bs=128k skip=64k count=1 iflag=direct,skip_bytes status=none
    echo 0 >$event/enable
    stop
}

# A bad block fails with the status of the medium, and its neighbours do not.
bad_block() {
    local address="nvme-tcp://$ADDRESS:$PORT/$NQN" neighbours=(--start-block 96 --block-count 4)
    start 4
    $WEFT read "$address" "${neighbours[@]}" >/tmp/neighbours
    refuses 'could not read its medium' $WEFT read "$address" --start-block 100 --block-count 1
    $WEFT write "$address" "${neighbours[@]}" </tmp/neighbours
    head -c 4096 /dev/zero >/tmp/block
    refuses 'could not write its medium' $WEFT write "$address" --start-block 100 --block-count 1 \
        </tmp/block
    $WEFT read "$address" --start-block 101 --block-count 1 >/dev/null
    stop
}

refused() {
    local load="--rw randread --bs 4k --runtime 1 --time_based"
    refuses '16 bytes of metadata' $WEFT bench "$(raw 3)" $load
    refuses 'neither a block device nor an NVMe namespace' $WEFT bench block:/dev/null $load
    refuses 'only io_uring' env WEFT_DRIVER=epoll $WEFT bench "$(raw 1)" $load
    # The block device is held meanwhile.
    start 1
    refuses "Can't open blockdev" mount "$(block 1)" /mnt
    stop
}

# The same load without the block layer and with it, and the ratio. Emulated, it says little.
baseline() {
    local device rw how
    fresh
    kill_target
    for rw in randread randwrite; do
        for how in raw block; do
            device=$($how 1)
            $WEFT bench "$device" --rw $rw --bs 4k --iodepth 8 --runtime 3 --time_based \
                --yes-destroy "$device" --output-format json >/tmp/$how.json
        done
        jq -rn --slurpfile raw /tmp/raw.json --slurpfile block /tmp/block.json --arg rw $rw '
            [$raw, $block | .[0].jobs[0][$rw[4:]].iops] as $iops |
            "\($rw): \($iops[0] | floor) IOPS without the block layer, \($iops[1] | floor) with it: ratio \($iops[0] / $iops[1])"'
    done
    # As docs/measuring.md has it.
    for how in raw block; do
        device=$($how 1)
        $WEFT study run local-vs-remote --local "$device" --yes-destroy "$device" --quiet \
            --set transport=local --quick --runtime 500ms --repeats 6 --seed 7 \
            --out /tmp/study-$how --output-format json >/tmp/study.json
        expect "measured cells" "$(jq .measured /tmp/study.json)" 12
    done
    $WEFT study compare /tmp/study-block /tmp/study-raw --metric iops --all || [ $? -eq 3 ] # slower
    device=$(raw 2)
    $WEFT bench "$device" --rw randwrite --bs 16k --iodepth 8 --size 8m --verify crc32c \
        --yes-destroy "$device"
    kernel_is_content
}

# The SSD is taken away under load: the host's requests fail, nothing hangs, and the target serves
# it again when it is back and the target was started anew.
vanished() {
    local device pci load
    start 1 2
    device=$(namespace 1)
    verified "$device" --size=4M --bs=64k --iodepth=4 --name=before
    fio --name=load --filename="$device" --direct=1 --ioengine=io_uring --rw=randread --bs=4k \
        --iodepth=32 --runtime=60 --time_based --output=/tmp/load.out </dev/null >/dev/null 2>&1 &
    load=$!
    sleep 2
    kill -0 $load || fail "the load has ended"
    pci=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
    echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
    ended() { ! kill -0 $load; }
    within 30 ended
    grep -m1 'err=' /tmp/load.out
    kill -0 "$(cat /tmp/target.pid)" || fail "the target has ended"
    cat $LOG
    $WEFT identify "nvme-tcp://$ADDRESS:$PORT/$NQN" >/dev/null
    stop
    echo "$pci" >/sys/bus/pci/drivers/nvme/bind
    within 20 there
    start 1
    verified "$(namespace 1)" --size=4M --bs=64k --iodepth=4 --name=after
    stop
}
