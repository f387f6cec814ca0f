# RDMA over soft-RoCE (or KIND), all inside the guest: one function a step. Namespace 1 of
# weft's target is 64 MiB of memory with blocks of 512 bytes, namespace 2 the same with blocks of 4096.
. /share/lib.sh

TRANSPORT=rdma
ADDRESS=10.9.0.1
PORT=4420
LINK=rdma0
KIND=${KIND:-rxe}

device() {
    ip link add $LINK type veth peer name rdma1
    ip link set $LINK up
    ip link set rdma1 up
    ip address add $ADDRESS/24 dev $LINK
    rdma link add ${KIND}0 type $KIND netdev $LINK
    rdma link
    within 10 active
    $WEFT rdma devices
    $WEFT rdma devices | grep ${KIND}0 | grep -qw lease
}

active() {
    rdma link show ${KIND}0/1 | grep -q 'state ACTIVE'
}

# url NSID
url() {
    echo "nvme-rdma://$ADDRESS:$PORT/$NQN?nsid=$1"
}

# start [LINE]: the target, whose namespaces keep their names over a restart.
start() {
    cat >/tmp/target.toml <<END
${1:-}
[[port]]
listen = "rdma://$ADDRESS:$PORT"
[[subsystem]]
nqn = "$NQN"
[[subsystem.namespace]]
memory = "64MiB"
block-size = 512
uuid = "11111111-2222-4333-8444-000000000001"
[[subsystem.namespace]]
memory = "64MiB"
uuid = "11111111-2222-4333-8444-000000000002"
END
    serve_inside --config /tmp/target.toml --control unix:/tmp/control
}

# begin [LINE]: starts a step with a new target, with this line in its configuration
begin() {
    fresh
    start "$@"
}

stop() {
    end_target
}

discover() {
    begin
    nvme discover -t rdma -a $ADDRESS -s $PORT -o json >/tmp/discover.json
    cat /tmp/discover.json
    local record
    record=$(jq -c --arg nqn "$NQN" '.records[] | select(.subnqn == $nqn)' /tmp/discover.json)
    expect transport "$(jq -r .trtype <<<"$record")" rdma
    expect address "$(jq -r .traddr <<<"$record")" $ADDRESS
    nvme connect-all -t rdma -a $ADDRESS -s $PORT
    namespace 1
    nvme id-ctrl "/dev/$(controllers)" -o json | jq -e '.ioccsz >= 4 and .msdbd >= 1'
    disconnect
    $WEFT discover "rdma://$ADDRESS:$PORT" | grep -q "$NQN"
    stop
    kernel_is_content
}

# 512 B to 1 MiB, depths of 1 to 128: in the capsule, with one key and with several descriptors
kernel_host_data() {
    begin
    connect
    verified_sizes "$(namespace 1)" 128 512 4096 65536 1048576
    verified "$(namespace 2)" --rw=randrw --bsrange=4k-256k --numjobs=2 --size=2M \
        --offset_increment=8M --iodepth=32 --name=mixed
    disconnect
    stop
    kernel_is_content
}

kernel_host_filesystem() {
    begin
    connect
    keeps_files 2 /etc /usr/bin/fio
    stop
    kernel_is_content
}

# bench URL BLOCK-BYTES DEPTH [OPTION...]: writes blocks with checksums and reads them back, at most
# 1024 of them: an emulated processor takes a minute for eight times as many
bench() {
    local size=$(($2 * 1024))
    [ $size -lt $((4 << 20)) ] || size=$((4 << 20))
    $WEFT bench "$1" --rw randwrite --bs "$2" --iodepth "$3" --verify crc32c --size $size \
        --runtime 1 --ramp-time 0 "${@:4}" | tee /tmp/bench
    grep -q ' 0 wrong' /tmp/bench || fail "blocks of $2 bytes at depth $3"
}

# moves URL ACCESS: 1 MiB there and back, with what the controller reaches being this
moves() {
    head -c 1M /dev/urandom >/tmp/data
    $WEFT write "$1" --block-count 256 --rdma-access "$2" </tmp/data
    $WEFT read "$1" --block-count 256 --rdma-access "$2" | cmp - /tmp/data
}

# What Linux' target, which invalidates keys, and ours reach of weft's host. Other steps have loads
# with a lease, which is the default here, over soft-iWARP only with our target.
# Windows get no load: under load soft-RoCE of Linux 6.12 may end in a null pointer
# (rxe_invalidate_mw).
access() {
    local access
    fresh
    (
        . /share/kernel_target.sh
        if [ -d "$NVMET/ports/1" ]; then start_port; else serve rdma $ADDRESS; fi
    )
    [ $KIND != rxe ] || moves "$(url 2)" window
    for access in lease wide; do
        moves "$(url 2)" $access
    done
    [ $KIND = rxe ] || bench "$(url 2)" 131072 4 --rdma-access lease
    bench "$(url 1)" 512 64 --rdma-access wide
    bench "$(url 2)" 131072 4 --rdma-access wide
    (. /share/kernel_target.sh && stop_port)
    begin
    [ $KIND != rxe ] || moves "$(url 2)" window
    [ $KIND = rxe ] || ! $WEFT list "$(url 1)" --rdma-access window ||
        fail "there are no windows over this device"
    bench "$(url 1)" 512 64 --rdma-access wide
    bench "$(url 2)" 1048576 4 --rdma-access wide
    stop
    kernel_is_content
}

# weft's host and Linux' target
kernel_target() {
    fresh
    (. /share/kernel_target.sh && serve rdma $ADDRESS)
    $WEFT discover "rdma://$ADDRESS:$PORT" | grep -q "$NQN"
    $WEFT identify "$(url 1)" | grep -q Linux
    head -c 1M /dev/urandom >/tmp/data
    $WEFT write "$(url 2)" --block-count 256 </tmp/data
    $WEFT flush "$(url 2)"
    $WEFT read "$(url 2)" --block-count 256 | cmp - /tmp/data
    cmp -n $((1 << 20)) /tmp/file /tmp/data
    bench "$(url 1)" 512 1
    bench "$(url 1)" 512 128
    bench "$(url 2)" 4096 32
    bench "$(url 2)" 65536 8
    bench "$(url 2)" 1048576 4
    (. /share/kernel_target.sh && stop_port)
    kernel_is_content
}

# weft at both ends
both_ends() {
    begin
    $WEFT list "$(url 1)"
    bench "$(url 1)" 512 128
    bench "$(url 2)" 4096 1
    bench "$(url 2)" 65536 32
    bench "$(url 2)" 1048576 8
    stop
}

ctl() {
    $WEFT ctl --control unix:/tmp/control "$@"
}

# express_commands: how many there were so far
express_commands() {
    ctl call statistics | jq '[.groups[].express.commands] | add'
}

# beside CLASS: one host reads 4 KiB, 100 times a second for 3 s, and its queue has this class; another
# one reads 128 KiB at a depth of 32. How many of the first one's commands were express
beside() {
    local first=nqn.2014-08.org.nvmexpress:uuid:0f1e2d3c-4b5a-4968-8776-000000000001
    local other=nqn.2014-08.org.nvmexpress:uuid:0f1e2d3c-4b5a-4968-8776-000000000002
    ctl qos set --host $first --class "$1" >&2
    $WEFT bench "$(url 2)" --rw randread --bs 128k --iodepth 32 --time_based --runtime 6 \
        --ramp-time 0 --hostnqn $other >/tmp/other.out &
    local load=$! before
    sleep 2
    before=$(express_commands)
    $WEFT bench "$(url 2)" --rw randread --bs 4k --rate_iops 100 --time_based --runtime 3 \
        --ramp-time 0 --hostnqn $first >/tmp/first.out
    echo $(($(express_commands) - before))
    wait $load
    (echo "class $1:" && cat /tmp/first.out /tmp/other.out) >&2
}

# A queue of the class latency is served between the commands of another, and one of the class
# throughput is not.
express() {
    # Only rules decide.
    begin "express = false"
    local count all
    count=$(beside throughput)
    expect "express commands" "$count" 0
    count=$(beside latency)
    # An emulated processor may not reach the rate.
    all=$(grep -o '[0-9]* requests' /tmp/first.out | cut -d ' ' -f 1)
    [ "$all" -ge 50 ] && [ $((3 * count)) -ge $((2 * all)) ] || fail "only $count commands of $all were express"
    bench "$(url 2)" 65536 32
    stop
    kernel_is_content
}

# SENDs and READs between two queue pairs, without storage
raw_link() {
    local operation wait
    for operation in send read; do
        for wait in "" --spin; do
            # shellcheck disable=SC2086
            $WEFT floor --rdma $ADDRESS --operation $operation $wait --iodepth 4 --runtime 500ms \
                --output-format json >/tmp/floor.json
            jq -e --arg operation "rdma $operation" '.protocol == $operation and .messages > 10 and
                .latency_ns.min > 0' /tmp/floor.json || { cat /tmp/floor.json; fail "no floor"; }
        done
    done
    ! $WEFT floor --rdma 127.0.0.1 --runtime 100ms 2>/tmp/floor.txt || fail "loopback has no adapter"
    cat /tmp/floor.txt
}

# A study of local, TCP and RDMA, with its report, and one of the raw link
study() {
    fresh
    rm -rf /share/study
    $WEFT study run local-vs-remote --quick --local memory:16MiB --only pattern=randread \
        --runtime 300ms --ramp-time 0s --repeats 1 --out /share/study
    local transport
    for transport in local tcp rdma; do
        grep -q "transport=$transport,plain,1,measured" /share/study/results.csv ||
            fail "nothing was measured over $transport"
    done
    grep -q 'is software' /share/study/environment.json
    grep -q '"contender": *"rdma' /share/study/answer.json
    grep -q '<th scope="row">rdma' /share/study/report.html
    # Its environment has the raw link over RDMA, of which cells are a share.
    jq -e '[.link[].connection.protocol] | index("rdma")' /share/study/environment.json
    rm -rf /share/link
    $WEFT study run link-probe --quick --only transport=rdma --runtime 300ms --repeats 1 \
        --out /share/link
    grep -q "transport=rdma,link,1,measured" /share/link/results.csv || fail "no raw link"
}

# The four pairings of host and target, weft's and the kernel's.
pairings() {
    fresh
    rm -rf /share/pairings
    $WEFT study run /share/pairings-rdma.toml --seed 7 --quiet --out /share/pairings \
        --output-format json >/share/pairings.json
    within 10 nothing_is_left
    kernel_is_content
}

end_load() {
    load_ended 120
    is_live "$(controllers)"
}

# The target is suspended for longer than the keep-alive timeout, and continues.
silent_target() {
    begin
    connect --keep-alive-tmo=4 --reconnect-delay=1 --ctrl-loss-tmo=120
    local device controller
    device=$(namespace 2)
    controller=$(controllers)
    verified "$device" --size=256k --bs=4k --name=before
    kill -STOP "$(cat /tmp/target.pid)"
    recovers() { dmesg | grep -q 'Reconnecting in'; }
    within 60 recovers
    kill -CONT "$(cat /tmp/target.pid)"
    reconnected() { dmesg | grep -q 'Successfully reconnected' && is_live "$controller"; }
    within 100 reconnected
    verified "$device" --size=256k --bs=4k --name=after
    cat $LOG
    disconnect
    stop
}

# The target is killed under load and restarted with empty memory: fio then verifies only what it
# has written since, and only requests in flight are written again.
killed_under_load() {
    begin
    connect --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5
    local device controller
    device=$(namespace 2)
    controller=$(controllers)
    fio --name=load --filename="$device" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k \
        --iodepth=8 --size=8M --time_based --runtime=12 --output=/tmp/load.out \
        </dev/null >/dev/null 2>&1 &
    echo $! >/tmp/load.pid
    sleep 3
    kill -KILL "$(cat /tmp/target.pid)"
    sleep 2
    start
    end_load
    dmesg | grep -q 'Successfully reconnected' || fail "the host did not reconnect"
    verified "$device" --size=512k --bs=4k --iodepth=8 --name=after
    disconnect
    stop
}

# resources: queue pairs, identifiers and other objects of the device
resources() {
    rdma resource show | sed -n "s/.*${KIND}0: //p"
}

# field NAME of the resources
field() {
    resources | grep -o "$1 [0-9]*" | cut -d' ' -f2
}

nothing_is_left_behind() {
    local empty pairs identifiers i
    # The kernel's host keeps some objects from its first connection on.
    begin
    connect >/dev/null
    namespace 1 >/dev/null
    disconnect >/dev/null
    stop
    empty=$(resources)
    start
    $WEFT list "$(url 1)" >/dev/null
    pairs=$(field qp)
    identifiers=$(field cm_id)
    for i in $(seq 90); do
        $WEFT list "$(url 1)" >/dev/null
    done
    for i in $(seq 10); do
        connect >/dev/null
        namespace 1 >/dev/null
        disconnect >/dev/null
    done
    settled() { [ "$(field qp)" = "$pairs" ] && [ "$(field cm_id)" = "$identifiers" ]; }
    resources
    within 20 settled
    stop
    all_back() { [ "$(resources)" = "$empty" ]; }
    resources
    within 20 all_back
    kernel_is_content
}

# link up|down: soft-iWARP is TCP, which goes from one address of a machine to another through lo.
link() {
    ip link set $LINK "$1"
    [ $KIND = rxe ] || ip link set lo "$1"
}

# The link is down for longer than the keep-alive timeout: the target ends the controller. The
# last step, because soft-RoCE of this kernel makes no connection again after that, to Linux' own
# target neither. Over soft-iWARP the host reconnects.
link_goes() {
    begin
    connect --keep-alive-tmo=4 --reconnect-delay=1 --ctrl-loss-tmo=120
    local controller device
    controller=$(controllers)
    device=$(namespace 2)
    verified "$device" --size=256k --bs=4k --name=before
    link down
    port() { grep -q "RDMA device ${KIND}0: port 1 is $1" $LOG; }
    [ $KIND != rxe ] || within 10 port down
    expired() { grep -q 'left controller.*keep-alive' $LOG; }
    within 30 expired
    cat $LOG
    kill -0 "$(cat /tmp/target.pid)" || fail "the target is gone"
    link up
    if [ $KIND = rxe ]; then
        within 10 port up
    else
        reconnected() { dmesg | grep -q 'Successfully reconnected' && is_live "$controller"; }
        within 60 reconnected
        verified "$device" --size=256k --bs=4k --name=after
        disconnect
    fi
    stop
}
