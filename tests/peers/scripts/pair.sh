# The Linux kernel's host with native multipath against a pair of weft's targets outside, with an
# ext4 on what they serve. The ports of both are in /share/ports.
. /share/lib.sh

# Connects to every port, makes a file system and begins to use it.
begin() {
    fresh
    [ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || fail "no native multipath"
    local port device
    for port in $(cat /share/ports); do
        PORT=$port connect --reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=5
    done
    within 10 all_live
    device=$(namespace 1)
    mkfs.ext4 -q -F "$device"
    mount "$device" /mnt
    fio_apart --name=load --directory=/mnt --direct=1 --ioengine=io_uring --time_based \
        --runtime=100000 --rw=randwrite --bs=4k --size=8M --iodepth=8 --fsync=64 --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --verify_backlog=64 --rate_iops=300 \
        --output=/tmp/load.out </dev/null >/dev/null 2>&1 &
    echo $! >/tmp/load.pid
    rm -f /tmp/files.end /tmp/files.done
    setsid bash -euo pipefail -c '. /share/pair.sh; files' </dev/null >/tmp/files.out 2>&1 &
    goes_on
}

all_live() {
    local controller count=0
    for controller in $(controllers); do
        is_live "$controller" || return 1
        count=$((count + 1))
    done
    [ "$count" = "$(wc -w </share/ports)" ]
}

# Files come, change and go, each with its number as content; the last ones stay.
files() {
    local number=0
    mkdir /mnt/files
    while [ ! -e /tmp/files.end ]; do
        number=$((number + 1))
        mkdir "/mnt/files/$number"
        head -n 2000 < <(yes "$number") >"/mnt/files/$number/content"
        sync "/mnt/files/$number/content"
        rm -rf "/mnt/files/$((number - 20))"
        sleep 0.1
    done
    echo "$number" >/tmp/files.done
}

# What was written to the device so far, in sectors.
written() {
    local device
    device=$(namespace 1)
    awk '{ print $7 }' "/sys/block/${device##*/}/stat"
}

# The load goes on: it writes a megabyte within a minute.
goes_on() {
    kill -0 "$(cat /tmp/load.pid)" || { cat /tmp/load.out; fail "the load has ended"; }
    local before
    before=$(written)
    moves() { [ "$(written)" -gt $((before + 2048)) ]; }
    within 60 moves
}

# Both loads end without an error, the files are whole, and so is the file system.
end() {
    goes_on
    touch /tmp/files.end
    kill -INT "$(cat /tmp/load.pid)"
    ended() { ! kill -0 "$(cat /tmp/load.pid)" 2>/dev/null; }
    within 60 ended
    grep -q 'err= 0' /tmp/load.out || { cat /tmp/load.out; fail "the load saw an error"; }
    within 60 test -e /tmp/files.done || { cat /tmp/files.out; fail "the files"; }
    local device number last first
    last=$(cat /tmp/files.done)
    [ "$last" -gt 5 ] || fail "only $last files"
    first=$((last > 20 ? last - 19 : 1))
    device=$(namespace 1)
    umount /mnt
    fsck.ext4 -fn "$device"
    mount -o ro "$device" /mnt
    for number in $(seq "$first" "$last"); do
        expect "file $number" "$(sort -u "/mnt/files/$number/content")" "$number"
        expect "lines of file $number" "$(wc -l <"/mnt/files/$number/content")" 2000
    done
    umount /mnt
    if dmesg | grep -E 'I/O error|critical|Buffer I/O|EXT4-fs (error|warning)|WARNING|BUG'; then
        fail "the kernel complains"
    fi
    disconnect
}
