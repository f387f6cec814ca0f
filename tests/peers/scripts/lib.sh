# For the scripts that run in the guest. The driver (tests/peers/src/kernels) sets
# ADDRESS, PORT and NQN; a script for another transport than TCP sets TRANSPORT.

CONFIGFS=/sys/kernel/config
# The driver has put the binary there, because programs on the share start slowly.
WEFT=/tmp/weft
# Of the target in the guest, if it is there.
LOG=/share/target.log
IDLE_POLL=/sys/module/nvmet_tcp/parameters/idle_poll_period_usecs

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect NAME ACTUAL EXPECTED: fails if the texts differ.
expect() {
    [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

# within SECONDS COMMAND...: retries the command until it succeeds, for at most that time.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/tmp/within 2>&1; do
        [ $SECONDS -lt $end ] || { cat /tmp/within; fail "not in time: $*"; }
        sleep 0.1
    done
}

# load_ended SECONDS [NAME]: fio, whose process is in /tmp/NAME.pid and whose output is in /tmp/NAME.out, ends in
# that time and without an error.
load_ended() {
    local load=/tmp/${2:-load} end=$((SECONDS + $1))
    while kill -0 "$(cat "$load.pid")" 2>/dev/null; do
        [ $SECONDS -lt $end ] || fail "fio hangs"
        sleep 0.2
    done
    grep -E 'err=|write:|read:' "$load.out"
    grep -q 'err= 0' "$load.out" || { cat "$load.out"; dmesg | tail -30; fail "fio saw an error"; }
}

# connect [OPTIONS...]: to $NQN at $ADDRESS:$PORT
connect() {
    nvme connect -t "${TRANSPORT:-tcp}" -a "$ADDRESS" -s "$PORT" -n "$NQN" "$@"
}

disconnect() {
    nvme disconnect -n "$NQN"
}

# Removes what an earlier step has left.
fresh() {
    grep -q ' /mnt ' /proc/mounts && umount /mnt
    ip link set eth0 up
    ip route replace default via 10.0.2.2
    nvme disconnect-all 2>/dev/null || true
    dmesg -C
}

# serve_inside WORDS...: weft's target in the guest, in place of an earlier one
serve_inside() {
    kill_target
    : >$LOG
    setsid $WEFT target "$@" </dev/null >>$LOG 2>&1 &
    echo $! >/tmp/target.pid
    within 60 grep -q 'nvme connect' $LOG
}

target_is_gone() {
    ! kill -0 "$(cat /tmp/target.pid)" 2>/dev/null
}

# end_target [SIGNAL]
end_target() {
    [ -e /tmp/target.pid ] || return 0
    kill "-${1:-TERM}" "$(cat /tmp/target.pid)" 2>/dev/null || true
    within 30 target_is_gone
    rm /tmp/target.pid
}

kill_target() {
    end_target KILL
}

# make_keys: secrets of DH-HMAC-CHAP, key0 without a transformation, key1 to key3 with each, key4
# and key5 of other lengths without one
make_keys() {
    local hmac number=4 length
    for hmac in 0 1 2 3; do
        nvme gen-dhchap-key --hmac=$hmac --nqn=nqn.2026-01.io.weft:any >"/share/key$hmac"
    done
    for length in 48 64; do
        nvme gen-dhchap-key --hmac=0 --key-length=$length --nqn=nqn.2026-01.io.weft:any \
            >"/share/key$number"
        number=$((number + 1))
    done
}

# secret KEY
secret() {
    cat "/share/key$1"
}

# controllers: the names of all controllers of $NQN
controllers() {
    local path
    for path in /sys/class/nvme/nvme*; do
        [ "$(cat "$path/subsysnqn" 2>/dev/null)" = "$NQN" ] && echo "${path##*/}"
    done
    return 0
}

# find_namespace NSID: the block device of a namespace of $NQN, if it exists
find_namespace() {
    local subsystem path
    for subsystem in /sys/class/nvme-subsystem/*; do
        [ "$(cat "$subsystem/subsysnqn" 2>/dev/null)" = "$NQN" ] || continue
        for path in "$subsystem"/nvme*n*; do
            case ${path##*/} in
            *c*n*) ;; # a path of a multipath namespace, without a device node
            *) [ "$(cat "$path/nsid" 2>/dev/null)" = "$1" ] && echo "/dev/${path##*/}" && return 0 ;;
            esac
        done
    done
    return 1
}

# namespace NSID: the same, waiting for it
namespace() {
    within 10 find_namespace "$1"
    find_namespace "$1"
}

# has_size DEVICE BYTES
has_size() {
    [ "$(blockdev --getsize64 "$1")" = "$2" ]
}

# is_live CONTROLLER
is_live() {
    [ "$(cat "/sys/class/nvme/$1/state")" = live ]
}

# all_zero DEVICE OFFSET LENGTH, both in MiB, read past the page cache
all_zero() {
    local sum
    sum=$(dd if="$1" bs=1M skip="$2" count="$3" iflag=direct status=none | md5sum)
    [ "$sum" = "$(dd if=/dev/zero bs=1M count="$3" status=none | md5sum)" ]
}

# Linux' host sends in the context of the process that makes a request: that process gets SIGPIPE if
# the target has closed the connection, which would end fio.
fio() { (trap '' PIPE && exec fio "$@"); }

# fio in a session of its own; to be started with "&".
fio_apart() { trap '' PIPE && exec setsid fio "$@"; }

# verified DEVICE JOBS...: fio writes all of each job's range, with a check sum in every block, and
# reads it back. Options before the first --name are for all jobs; ENGINE is fio's way to do I/O.
verified() {
    local device=$1 written read_back
    shift
    fio --filename="$device" --direct=1 --ioengine="${ENGINE:-io_uring}" --rw=randwrite \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output-format=json --output=/tmp/fio.json "$@" ||
        { cat /tmp/fio.json; fail "fio $*: $(grep -E '"error"|^fio:' /tmp/fio.json | tr -s ' \n' ' ')"; }
    sed -i -n "/^{/,\$p" /tmp/fio.json # notes come first
    written=$(jq '[.jobs[] | select(.error == 0) | .write.io_bytes] | add' /tmp/fio.json)
    read_back=$(jq '[.jobs[].read.io_bytes] | add' /tmp/fio.json)
    [ "$written" -gt 0 ] && [ "$read_back" -ge "$written" ] || fail "$written written, $read_back read"
    echo "$(jq '.jobs | length' /tmp/fio.json) jobs wrote and verified $written bytes on $device"
}

# verified_sizes DEVICE FACTOR SIZES...: the same at depths of 1 to 128, of FACTOR blocks of each size
# but at most 2 MiB
verified_sizes() {
    local device=$1 factor=$2 size depth offset=0 jobs=()
    shift 2
    for size in "$@"; do
        for depth in 1 16 128; do
            local bytes=$((size * factor))
            [ $bytes -le $((2 << 20)) ] || bytes=$((2 << 20))
            jobs+=(--name="$size-$depth" --stonewall --bs=$size --iodepth=$depth
                --offset=$offset --size=$bytes)
            offset=$((offset + bytes))
        done
    done
    verified "$device" "${jobs[@]}"
}

# keeps_files NSID FILES...: a file system on it has these files after the host has come again
keeps_files() {
    local nsid=$1 device
    shift
    device=$(namespace "$nsid")
    mkfs.ext4 -q -F "$device"
    mount "$device" /mnt
    cp -r "$@" /mnt/
    (cd /mnt && find . -type f -print0 | sort -z | xargs -0 md5sum) >/tmp/before
    du -sh /mnt
    umount /mnt
    fsck.ext4 -fn "$device"
    disconnect
    connect
    device=$(namespace "$nsid")
    mount "$device" /mnt
    (cd /mnt && md5sum --quiet -c /tmp/before)
    wc -l </tmp/before
    umount /mnt
    disconnect
}

# refuses TEXT COMMAND...: it fails with a sentence that has this text
refuses() {
    local text=$1 status=0
    shift
    "$@" >/tmp/said 2>&1 || status=$?
    cat /tmp/said
    [ $status -ne 0 ] || fail "$* has succeeded"
    grep -q "$text" /tmp/said || fail "$* does not say '$text'"
}

# Fails if the kernel's log has messages that a correct peer does not cause. A keep-alive command
# that is in flight when its controller is removed fails with it and is logged: that is ignored.
kernel_is_content() {
    local complaint='WARNING|BUG|Call Trace|identifiers changed|I/O error|digest error|invalid|'
    complaint+='unexpected|\bbad |failed|not supported|duplicate|globally|timeout'
    if dmesg | grep -E 'nvme|blk|EXT4|WARNING|BUG|Call Trace' |
        grep -v 'failed nvme_keep_alive_end_io error=4' | grep -iE "$complaint"; then
        fail "the kernel complains"
    fi
}

# Nothing of a study is left: no subsystem, port, disk, connection, journal or process.
nothing_is_left() {
    local left
    left=$(ls $CONFIGFS/nvmet/subsystems $CONFIGFS/nvmet/ports /sys/class/nvme 2>/dev/null |
        grep -v ':$' | tr '\n' ' ')
    left+=$(ls /run/weft-study 2>/dev/null || true)
    left+=$(find $CONFIGFS/nullb -mindepth 1 -maxdepth 1 -type d 2>/dev/null || true)
    left+=$(pgrep -a '^weft$' || true)
    # What new sockets of the kernel's host get, and how long its target polls.
    left+=$(grep -vh '^0$' /sys/module/nvme_tcp/parameters/so_priority \
        $IDLE_POLL 2>/dev/null || true)
    echo "left: $left"
    [ -z "${left// /}" ]
}
