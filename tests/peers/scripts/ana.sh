# The Linux kernel's host with native multipath against weft's target on two ports, whose access
# states the driver changes outside. The second port is in /share/second.
. /share/lib.sh

# Connects to both ports: one subsystem, two controllers, one block device for each namespace.
connect_both() {
    fresh
    [ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || fail "no native multipath"
    connect --reconnect-delay=1 --ctrl-loss-tmo=120
    PORT=$(cat /share/second) connect --reconnect-delay=1 --ctrl-loss-tmo=120
    expect controllers "$(controllers | wc -l)" 2
    namespace 1
}

# on_port PORT: the controller that is connected to it
on_port() {
    local controller
    for controller in $(controllers); do
        grep -q "trsvcid=$1" "/sys/class/nvme/$controller/address" && echo "$controller"
    done
    return 0
}

# state PORT NSID: the access state of a namespace on the path through a port
state() {
    local path controller
    controller=$(on_port "$1")
    for path in /sys/class/nvme/"$controller"/nvme*c*n*; do
        [ "$(cat "$path/nsid")" = "$2" ] && cat "$path/ana_state"
    done
    return 0
}

has_state() {
    [ "$(state "$1" "$2")" = "$3" ]
}

# states FIRST SECOND [NSID]: waits until the paths of a namespace have these states.
states() {
    within 30 has_state "$PORT" "${3:-1}" "$1"
    within 30 has_state "$(cat /share/second)" "${3:-1}" "$2"
}

identified() {
    connect_both
    local controller
    controller=/dev/$(on_port "$PORT")
    nvme id-ctrl "$controller" -o json >/tmp/ctrl.json
    jq -e '(.cmic / 8 | floor) % 2 == 1 and .anatt == 10 and .anacap == 31' /tmp/ctrl.json
    jq -e '.anagrpmax > 0 and .nanagrpid == .anagrpmax and .mnan == .nn' /tmp/ctrl.json
    nvme id-ns "$(namespace 2)" -o json | jq -e '.anagrpid == 2'
    nvme ana-log "$controller" -o json | tee /tmp/ana.json
    jq -e '[.["ANA DESC LIST "][]?.grpid] == [1, 2]' /tmp/ana.json ||
        nvme ana-log "$controller" | grep -q 'grpid.*2'
    nvme list-subsys
    dmesg | grep -i 'nvme' || true
    if dmesg | grep -iE 'ANA.*(disabl|not supported)|invalid.*ANA'; then fail "no ANA"; fi
    states optimized optimized
    disconnect
    kernel_is_content
}

# Load on both namespaces while the driver changes the states.
start_load() {
    connect_both
    local device nsid
    for nsid in 1 2; do
        device=$(namespace $nsid)
        fio_apart --name=load --filename="$device" --direct=1 --ioengine=io_uring --time_based \
            --runtime=100000 --rw=randwrite --bs=4k --size=4M --iodepth=16 --verify=crc32c \
            --verify_fatal=1 --verify_state_save=0 --verify_backlog=64 --rate_iops=400 \
            --output="/tmp/load$nsid.out" </dev/null >/dev/null 2>&1 &
        echo $! >"/tmp/load$nsid.pid"
    done
    sleep 2
    kill -0 "$(cat /tmp/load1.pid)" "$(cat /tmp/load2.pid)"
}

# Both loads go on, see no error and end.
end_load() {
    local nsid
    for nsid in 1 2; do
        local pid device before
        pid=$(cat "/tmp/load$nsid.pid")
        kill -0 "$pid" || { cat "/tmp/load$nsid.out"; dmesg | tail -40; fail "load $nsid has ended"; }
        device=$(namespace $nsid)
        before=$(cut -d' ' -f5 <(tr -s ' ' <"/sys/block/${device##*/}/stat" | sed 's/^ //'))
        moves() { [ "$(cut -d' ' -f5 <(tr -s ' ' <"/sys/block/${device##*/}/stat" | sed 's/^ //'))" -gt "$before" ]; }
        within 10 moves
    done
    for nsid in 1 2; do
        kill -INT "$(cat "/tmp/load$nsid.pid")"
        load_ended 30 "load$nsid"
    done
    if dmesg | grep -E 'I/O error|critical|Buffer I/O'; then fail "an I/O error"; fi
    disconnect
}

# A host without native multipath uses one port as if there were no access states.
without_multipath() {
    fresh
    modprobe -r nvme-tcp nvme-fabrics nvme-core
    modprobe nvme-core multipath=N
    modprobe nvme-tcp
    connect
    local device
    device=/dev/$(controllers)n1
    within 10 test -b "$device"
    verified "$device" --size=1M --bs=4k --iodepth=16 --name=plain
    disconnect
    modprobe -r nvme-tcp nvme-fabrics nvme-core
    modprobe nvme-core multipath=Y
    modprobe nvme-tcp
    kernel_is_content
}

is_gone() {
    ! find_namespace "$1"
}

# is_mapped NSID UUID MEBIBYTES: the host has come to have this namespace by both ports.
is_mapped() {
    mapped() {
        local device
        device=$(find_namespace "$1") || return 1
        [ "$(cat "/sys/block/${device##*/}/uuid")" = "$2" ] && has_size "$device" $(($3 << 20)) &&
            [ "$(state "$PORT" "$1") $(state "$(cat /share/second)" "$1")" = "optimized optimized" ]
    }
    within 20 mapped "$@"
    dd if="$(find_namespace "$1")" of=/dev/null bs=1M count="$3" iflag=direct status=none
    if dmesg | grep -E 'WARNING|BUG|Call Trace'; then fail "the kernel complains"; fi
    # It looked for partitions of namespaces that were gone.
    dmesg -C
}
