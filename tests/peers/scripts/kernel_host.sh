# The Linux kernel's host (and nvme-cli, fio, ext4) against weft's target: one function a step.
# Namespace 1 is 64 MiB of memory with blocks of 512 bytes, namespace 2 a file of 96 MiB with
# blocks of 4096. Between two functions the driver does what a step needs outside the guest.
. /share/lib.sh

MEMORY_BYTES=$((64 << 20))
FILE_BYTES=$((96 << 20))

discover() {
    fresh
    nvme discover -t tcp -a "$ADDRESS" -s "$PORT" -o json >/tmp/discover.json
    cat /tmp/discover.json
    local record
    record=$(jq -c --arg nqn "$NQN" '.records[] | select(.subnqn == $nqn)' /tmp/discover.json)
    expect transport "$(jq -r .trtype <<<"$record")" tcp
    expect address "$(jq -r .traddr <<<"$record")" "$ADDRESS"
    expect port "$(jq -r .trsvcid <<<"$record")" "$PORT"
    expect kind "$(jq -r .subtype <<<"$record")" "nvme subsystem"
    jq -e '.genctr >= 1' /tmp/discover.json
    kernel_is_content
}

connect_all() {
    fresh
    nvme connect-all -t tcp -a "$ADDRESS" -s "$PORT"
    namespace 1
    namespace 2
    expect controllers "$(controllers | wc -l)" 1
    disconnect
    kernel_is_content
}

# A persistent discovery controller: keep-alive and async events on a discovery subsystem.
persistent_discovery() {
    fresh
    nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --persistent --keep-alive-tmo=5
    grep -l discovery /sys/class/nvme/nvme*/subsysnqn
    sleep 8
    local controller
    controller=$(grep -l discovery /sys/class/nvme/nvme*/subsysnqn | cut -d/ -f5)
    is_live "$controller" || fail "the discovery controller is $(cat "/sys/class/nvme/$controller/state")"
    nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --device="$controller"
    nvme disconnect -d "$controller"
    kernel_is_content
}

# The host registers with a discovery controller, as nvme-stas has libnvme do it.
registered() {
    fresh
    nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --persistent --keep-alive-tmo=5
    local controller
    controller=$(grep -l discovery /sys/class/nvme/nvme*/subsysnqn | cut -d/ -f5)
    nvme dim --device="$controller" --task=register
    nvme dim --device="$controller" --task=deregister
    nvme disconnect -d "$controller"
    kernel_is_content
}

identify() {
    fresh
    connect
    local memory file controller
    memory=$(namespace 1)
    file=$(namespace 2)
    controller=/dev/$(controllers)
    nvme list
    nvme list-subsys
    nvme list -o json | jq -e '.Devices | length >= 1'
    nvme id-ctrl "$controller"
    nvme id-ctrl "$controller" -o json >/tmp/ctrl.json
    expect subnqn "$(jq -r .subnqn /tmp/ctrl.json)" "$NQN"
    expect "controller type" "$(jq -r .cntrltype /tmp/ctrl.json)" 1
    expect "volatile write cache" "$(jq -r '.vwc % 2' /tmp/ctrl.json)" 1
    jq -e '.nn >= 2 and .ioccsz >= 4 and .iorcsz == 1 and .kas > 0 and .maxcmd > 0' /tmp/ctrl.json
    jq -e '(.oncs / 4 | floor) % 4 == 3' /tmp/ctrl.json # Dataset Management, Write Zeroes
    nvme id-ns "$memory" -o json | jq -e --argjson n $((MEMORY_BYTES / 512)) '.nsze == $n'
    nvme id-ns "$file" -o json | jq -e --argjson n $((FILE_BYTES / 4096)) '.nsze == $n'
    expect "block size" "$(blockdev --getss "$memory")" 512
    expect "block size" "$(blockdev --getss "$file")" 4096
    has_size "$memory" $MEMORY_BYTES || fail "size of namespace 1"
    has_size "$file" $FILE_BYTES || fail "size of namespace 2"
    nvme ns-descs "$file"
    nvme ns-descs "$file" | grep -q '^uuid'
    nvme list-ns "$controller"
    expect namespaces "$(nvme list-ns "$controller" | grep -c ":0x")" 2
    expect "allocated namespaces" "$(nvme list-ns "$controller" --all | grep -c ":0x")" 2
    nvme id-ns "$controller" -n 2 --force -o json |
        jq -e --argjson n $((FILE_BYTES / 4096)) '.nsze == $n'
    local own
    own=$(jq -r .cntlid /tmp/ctrl.json)
    nvme list-ctrl "$controller" | tee /tmp/controllers
    grep -q "$(printf '0x%x' "$own")" /tmp/controllers
    nvme list-ctrl "$controller" -n 1 | grep -q "$(printf '0x%x' "$own")"
    nvme nvm-id-ctrl "$controller"
    nvme nvm-id-ns "$file" >/dev/null
    nvme cmdset-ind-id-ns "$file"
    nvme show-regs "$controller"
    disconnect
    kernel_is_content
}

# Identities do not change when a host reconnects.
identity() {
    fresh
    connect
    namespace 2 >/dev/null
    local path
    path=$(namespace 2)
    cat "/sys/block/${path##*/}/uuid" "/sys/block/${path##*/}/wwid" | tee /share/identity
    disconnect
}

logs() {
    fresh
    connect
    local device controller before after
    device=$(namespace 1)
    controller=/dev/$(controllers)
    nvme get-log "$controller" --log-id=2 --log-len=512 >/dev/null
    nvme supported-log-pages "$controller"
    nvme id-ctrl "$controller" -o json >/tmp/ctrl.json
    before=$(nvme smart-log "$controller" -o json | jq .host_read_commands)
    dd if="$device" of=/dev/null bs=64k count=16 iflag=direct status=none
    nvme smart-log "$controller"
    after=$(nvme smart-log "$controller" -o json | jq .host_read_commands)
    [ "$after" -ge $((before + 16)) ] || fail "reads before $before, after $after"
    nvme fw-log "$controller"
    nvme effects-log "$controller" --csi=0 >/tmp/effects
    grep -i -A1 'admin commands' /tmp/effects
    grep -i 'nvm command set' /tmp/effects
    grep -q -i write /tmp/effects
    nvme changed-ns-list-log "$controller"
    nvme error-log "$controller" -e 4
    # A failed command (a read beyond the end) has an entry.
    if nvme read "$device" -s $((MEMORY_BYTES / 512)) -c 0 -z 512 >/dev/null 2>/tmp/error; then
        fail "a read beyond the end succeeded"
    fi
    cat /tmp/error
    grep -qi 'LBA' /tmp/error
    nvme error-log "$controller" -e 4 -o json | tee /tmp/errors.json
    jq -e '.errors[0].error_count > 0' /tmp/errors.json
    # An offset into a log page.
    nvme get-log "$controller" --log-id=2 --log-len=64 --lpo=64 -b >/tmp/part
    expect "bytes of a part" "$(stat -c %s /tmp/part)" 64
    # Telemetry is captured, and read again as it was. A controller has none of its own.
    nvme telemetry-log "$controller" --output-file=/tmp/telemetry
    tail -c +513 /tmp/telemetry | tr -d '\0' | tee /tmp/telemetry.text
    local blocks
    blocks=$(od -An -tu2 -j12 -N2 /tmp/telemetry)
    expect "bytes of telemetry" "$(stat -c %s /tmp/telemetry)" $((512 * (1 + blocks)))
    grep -q '^weft-telemetry: 1$' /tmp/telemetry.text
    grep -q "^controller: $(jq -r .cntlid /tmp/ctrl.json)$" /tmp/telemetry.text
    grep -q "^host: $(cat "/sys/class/nvme/${controller##*/}/hostnqn")$" /tmp/telemetry.text
    grep -q '^io-queue: 1 entries=' /tmp/telemetry.text
    nvme telemetry-log "$controller" --host-generate=0 --output-file=/tmp/again
    cmp /tmp/telemetry /tmp/again
    # Without --rae nvme-cli 2.13 writes what it has not read.
    nvme telemetry-log "$controller" --controller-init --rae --output-file=/tmp/own
    expect "bytes of the controller's own" "$(stat -c %s /tmp/own)" 512
    # A reset is the newest of the persistent events, which are read within a context.
    nvme reset "$controller"
    within 10 is_live "${controller##*/}"
    if nvme persistent-event-log "$controller" --action=0; then fail "read without a context"; fi
    nvme persistent-event-log "$controller" --action=1
    if nvme persistent-event-log "$controller" --action=1; then fail "two contexts"; fi
    nvme persistent-event-log "$controller" --action=0 | tee /tmp/events
    grep -q '^Event Type: Power-on or Reset' /tmp/events
    grep -q "^Controller ID: $(jq -r .cntlid /tmp/ctrl.json)$" /tmp/events
    nvme persistent-event-log "$controller" --action=2
    disconnect
}

features() {
    fresh
    connect
    local controller
    controller=/dev/$(controllers)
    namespace 1
    nvme get-feature "$controller" -f 7 -H # number of queues
    nvme get-feature "$controller" -f 6 -H # volatile write cache
    nvme get-feature "$controller" -f 0xb -H # async event configuration
    nvme get-feature "$controller" -f 0xf -H # keep-alive timer
    nvme get-feature "$controller" -f 4 # temperature threshold
    nvme get-feature "$(namespace 1)" -n 1 -f 5 # error recovery
    nvme get-feature "$controller" -f 6 | grep -q -i 'value:0x0*1$'
    disconnect
    kernel_is_content
}

# Commands that the block layer does not send, byte by byte.
commands() {
    fresh
    connect
    local device
    device=$(namespace 1)
    head -c 4096 /dev/urandom >/tmp/a
    head -c 4096 /dev/urandom >/tmp/b
    nvme write "$device" -s 8 -c 7 -z 4096 -d /tmp/a
    nvme read "$device" -s 8 -c 7 -z 4096 -d /tmp/back
    cmp /tmp/a /tmp/back
    nvme compare "$device" -s 8 -c 7 -z 4096 -d /tmp/a
    if nvme compare "$device" -s 8 -c 7 -z 4096 -d /tmp/b 2>/tmp/error; then
        fail "compare found other bytes equal"
    fi
    cat /tmp/error
    grep -q -i compare /tmp/error
    nvme write "$device" -s 8 -c 7 -z 4096 -d /tmp/b --force-unit-access
    nvme verify "$device" -s 8 -c 7
    nvme flush "$device" -n 1
    nvme write-zeroes "$device" -s 8 -c 3
    nvme read "$device" -s 8 -c 7 -z 4096 -d /tmp/back
    cmp -n 2048 /tmp/back /dev/zero
    cmp -i 2048 /tmp/back /tmp/b
    nvme dsm "$device" -n 1 --ad --slbs=8,16 --blocks=8,8
    nvme read "$device" -s 8 -c 7 -z 4096 -d /tmp/back
    cmp -n 4096 /tmp/back /dev/zero
    # Copy: two ranges, one after the other, and one that is over itself.
    nvme id-ns "$device" -o json | jq -e '.mssrl == 65535 and .mcl == 65536 and .msrc == 127'
    nvme write "$device" -s 32 -c 7 -z 4096 -d /tmp/a
    nvme copy "$device" --sdlba=64 --slbs=36,32 --blocks=3,3
    nvme read "$device" -s 64 -c 7 -z 4096 -d /tmp/back
    cmp -n 2048 /tmp/back /tmp/a 0 2048
    cmp -n 2048 /tmp/back /tmp/a 2048 0
    if nvme copy "$device" --sdlba=36 --slbs=32 --blocks=7 2>/tmp/error; then
        fail "blocks were copied over themselves"
    fi
    cat /tmp/error
    # Blocks that cannot be read until they are written.
    nvme write-uncor "$device" -s 65 -c 1
    if nvme read "$device" -s 64 -c 7 -z 4096 -d /tmp/back 2>/tmp/error; then
        fail "marked blocks were read"
    fi
    cat /tmp/error
    grep -q -i 'unrecovered\|uncorrectable\|read error' /tmp/error
    if nvme verify "$device" -s 66 -c 0; then fail "a marked block was verified"; fi
    nvme verify "$device" -s 67 -c 4
    nvme write "$device" -s 64 -c 7 -z 4096 -d /tmp/b
    nvme read "$device" -s 64 -c 7 -z 4096 -d /tmp/back
    cmp /tmp/back /tmp/b
    # An unknown command fails, and the connection stays.
    if nvme io-passthru "$device" -o 0x7f -n 1 2>/tmp/error; then
        fail "an unknown command succeeded"
    fi
    cat /tmp/error
    expect controllers "$(controllers | wc -l)" 1
    is_live "$(controllers)"
    disconnect
}

# The host makes a namespace, attaches it to itself, uses it, and deletes it.
managed_namespaces() {
    fresh
    connect
    local controller made path
    controller=/dev/$(controllers)
    namespace 1
    nvme id-ctrl "$controller" -o json >/tmp/ctrl.json
    jq -e '(.oacs / 8 | floor) % 2 == 1' /tmp/ctrl.json
    expect capacity "$(jq -r .unvmcap /tmp/ctrl.json)" $((32 << 20))
    nvme create-ns "$controller" --nsze=4096 --ncap=4096 --block-size=4096 | tee /tmp/created
    made=$(sed -n 's/.*nsid:\([0-9]*\).*/\1/p' /tmp/created)
    expect "allocated namespaces" "$(nvme list-ns "$controller" --all | grep -c ":0x")" 3
    expect "attached namespaces" "$(nvme list-ns "$controller" | grep -c ":0x")" 2
    nvme attach-ns "$controller" -n "$made" -c "$(jq -r .cntlid /tmp/ctrl.json)"
    path=$(namespace "$made")
    has_size "$path" $((16 << 20)) || fail "size of namespace $made"
    verified "$path" --bs=4k --size=4M --iodepth=16 --name=made
    nvme detach-ns "$controller" -n "$made" -c "$(jq -r .cntlid /tmp/ctrl.json)"
    without_made() { ! find_namespace "$made"; }
    within 10 without_made
    nvme attach-ns "$controller" -n "$made" -c "$(jq -r .cntlid /tmp/ctrl.json)"
    namespace "$made"
    if nvme create-ns "$controller" --nsze=8192 --ncap=8192 --block-size=4096; then
        fail "a namespace was made beyond the capacity"
    fi
    if nvme delete-ns "$controller" -n 1; then fail "a namespace of the operator was deleted"; fi
    nvme delete-ns "$controller" -n "$made"
    within 10 without_made
    expect "allocated namespaces" "$(nvme list-ns "$controller" --all | grep -c ":0x")" 2
    disconnect
}

# data DEVICE-NSID MIN-BLOCK [CONNECT-OPTIONS...]: sizes of 512 B to 1 MiB, depths of 1 to 128
data() {
    local nsid=$1 sizes=(4096 16384 65536 262144 1048576)
    [ "$2" -eq 4096 ] || sizes=("$2" "${sizes[@]}")
    shift 2
    fresh
    connect "$@"
    verified_sizes "$(namespace "$nsid")" 256 "${sizes[@]}"
    kernel_is_content
    disconnect
}

# Four jobs at once that read and write blocks of many sizes.
mixed() {
    fresh
    connect
    verified "$(namespace 1)" --rw=randrw --bsrange=512-64k --numjobs=4 --size=4M \
        --offset_increment=8M --iodepth=32 --name=mixed
    kernel_is_content
    disconnect
}

digests() {
    fresh
    connect --hdr-digest --data-digest
    local device
    device=$(namespace 1)
    dmesg | grep -i nvme || true
    verified "$device" --size=4M --bsrange=512-256k --iodepth=32 --name=digests
    disconnect
    connect --hdr-digest
    verified "$(namespace 1)" --size=2M --bs=64k --iodepth=8 --name=header
    disconnect
    connect --data-digest
    verified "$(namespace 1)" --size=2M --bs=64k --iodepth=8 --name=data
    disconnect
    kernel_is_content
}

# queues CONNECT-OPTIONS...
queues() {
    echo "connect $*"
    fresh
    connect "$@"
    verified "$(namespace 1)" --size=1M --bs=4k --iodepth=64 --name=queues
    kernel_is_content
    disconnect
}

# Few and many queues, short queues, polled and write queues, no SQ flow control.
queues_of_all_kinds() {
    queues --nr-io-queues=1
    queues --nr-io-queues=2 --queue-size=16
    queues --disable-sqflow
    queues --nr-io-queues=1 --nr-write-queues=1 --nr-poll-queues=1
    queues --queue-size=1024
    queues --keep-alive-tmo=30 --tos=8
}

# filesystem FILES...
filesystem() {
    fresh
    connect
    keeps_files 2 "$@"
    kernel_is_content
}

# The kernel flushes only where a volatile write cache is advertised, and uses FUA for journals.
write_cache() {
    fresh
    connect
    local device queue
    device=$(namespace 2)
    queue=/sys/block/${device##*/}/queue
    expect "write cache" "$(cat "$queue/write_cache")" "write back"
    expect fua "$(cat "$queue/fua")" 1
    fio --name=sync --filename="$device" --ioengine=psync --rw=write --bs=4k --size=64k --fsync=1 \
        --output-format=terse >/dev/null
    dd if=/dev/zero of="$device" bs=4k count=8 oflag=direct,dsync status=none
    disconnect
    kernel_is_content
}

fill() {
    fresh
    connect
    dd if=/dev/urandom of="$(namespace 2)" bs=1M count=16 oflag=direct conv=fsync status=none
}

discard() {
    local device
    device=$(namespace 2)
    all_zero "$device" 0 8 && fail "nothing to discard"
    blkdiscard -o 0 -l $((8 << 20)) "$device"
    all_zero "$device" 0 8 || fail "discarded blocks are not zero"
    all_zero "$device" 8 8 && fail "too much is zero"
    return 0
}

punch() {
    local device
    device=$(namespace 2)
    fallocate -p -o $((8 << 20)) -l $((4 << 20)) "$device" # Write Zeroes that may deallocate
    all_zero "$device" 8 4 || fail "punched blocks are not zero"
    all_zero "$device" 12 4 && fail "too much is zero"
    return 0
}

zero() {
    local device
    device=$(namespace 2)
    blkdiscard -z -o $((12 << 20)) -l $((4 << 20)) "$device"
    all_zero "$device" 12 4 || fail "zeroed blocks are not zero"
    disconnect
    kernel_is_content
}

# Namespaces change while a host is connected; between these the driver changes the configuration.
before_change() {
    fresh
    connect
    namespace 1
    namespace 2
    find_namespace 3 && fail "namespace 3 is already there"
    return 0
}

# grown BYTES
grown() {
    within 10 has_size "$(namespace 2)" "$1"
    verified "$(namespace 2)" --bs=64k --offset=$(($1 - (4 << 20))) --size=4M --iodepth=8 --name=grown
}

added() {
    verified "$(namespace 3)" --bs=4k --size=1M --iodepth=16 --name=added
}

removed() {
    gone() { ! find_namespace 3; }
    within 10 gone
    verified "$(namespace 1)" --bs=4k --size=1M --iodepth=16 --name=others
    dmesg | grep -i nvme
    disconnect
}

two_hosts() {
    fresh
    local id=11111111-2222-4333-8444-00000000000
    connect --hostnqn=nqn.2014-08.org.nvmexpress:uuid:${id}1 --hostid=${id}1
    connect --hostnqn=nqn.2014-08.org.nvmexpress:uuid:${id}2 --hostid=${id}2
    nvme list-subsys
    expect controllers "$(controllers | wc -l)" 2
    local device policy
    device=$(namespace 1)
    for policy in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin >"$policy"; done
    expect paths "$(ls -d /sys/class/nvme/nvme*/nvme*c*n* | wc -l)" 4
    verified "$device" --size=8M --bs=4k --iodepth=64 --name=both
    # One disconnects; the other is not affected.
    nvme disconnect -d "$(controllers | head -1)"
    verified "$device" --size=2M --bs=4k --iodepth=16 --name=one
    disconnect
    kernel_is_content
}

# Resets of the controller, or of the subsystem, under load.
reset() {
    fresh
    connect
    local device controller worker
    device=$(namespace 1)
    controller=$(controllers)
    verified "$device" --size=16M --bs=4k --iodepth=32 --name=reset &
    worker=$!
    for _ in 1 2 3; do
        sleep 1
        nvme "${1:-reset}" "/dev/$controller"
        within 10 is_live "$controller"
    done
    wait $worker
    disconnect
}

# The target is killed and restarted under load, by the driver between these functions.
# start_load [OPTIONS...]: of LOAD_SIZE
start_load() {
    fresh
    connect --reconnect-delay=1 --ctrl-loss-tmo=120 "$@"
    namespace 2 >/tmp/device
    fio_apart --name=restart --filename="$(cat /tmp/device)" --direct=1 --ioengine=io_uring \
        --rw=randwrite --bs=4k --size="${LOAD_SIZE:-24M}" --iodepth=32 --rate=1m,1m --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --output=/tmp/load.out </dev/null >/dev/null 2>&1 &
    echo $! >/tmp/load.pid
    sleep 4
    kill -0 "$(cat /tmp/load.pid)"
}

end_load() {
    load_ended "$1"
    dmesg | grep -i -E 'reconnect|removing|resett?ing' || true
    is_live "$(controllers)"
    disconnect
}

# The target ends the controller of a host that sends nothing; later the host reconnects.
silence() {
    fresh
    connect --keep-alive-tmo=4 --reconnect-delay=1 --ctrl-loss-tmo=120
    verified "$(namespace 1)" --size=256k --bs=4k --name=before
    controllers >/tmp/controller
    ip link set eth0 down
}

recovered() {
    ip link set eth0 up
    ip route replace default via 10.0.2.2
    local controller
    controller=$(cat /tmp/controller)
    reconnected() { dmesg | grep -q 'Successfully reconnected' && is_live "$controller"; }
    within 60 reconnected
    verified "$(namespace 1)" --size=256k --bs=4k --name=after
    disconnect
}

# A host that the subsystem does not allow, and one that it does.
refused_host() {
    fresh
    if connect 2>/tmp/error; then fail "a host that is not allowed has connected"; fi
    cat /tmp/error
    dmesg | grep -i 'nvme'
    dmesg | grep -q 'Connect for subsystem .* is not allowed'
}

allowed_host() {
    fresh
    local id=11111111-2222-4333-8444-000000000003
    connect --hostnqn=nqn.2026-01.io.weft:allowed --hostid=$id
    namespace 1
    disconnect
}

# connected_with HOST [KEY [CONTROLLERS-KEY]]
connected_with() {
    local id=11111111-2222-4333-8444-$(printf %012d $((RANDOM + 1)))
    connect --hostnqn="$1" --hostid="$id" --nr-io-queues=2 \
        ${2:+--dhchap-secret="$(secret "$2")"} ${3:+--dhchap-ctrl-secret="$(secret "$3")"}
}

# reads: every queue of namespace 1, past the page cache
reads() {
    local device
    device=$(namespace 1)
    fio --name=reads --filename="$device" --direct=1 --rw=randread --bs=4k --size=1M \
        --numjobs=2 --output=/tmp/fio.txt || { cat /tmp/fio.txt; fail "reads"; }
}

# authenticated HOST KEY [CONTROLLERS-KEY]
authenticated() {
    dmesg -C
    connected_with "$@"
    dmesg | grep -q 'authenticated' || fail "$1 was not asked for its key"
    dd if="$(namespace 1)" of=/dev/null bs=64k count=4 iflag=direct status=none
    disconnect >/dev/null
    echo "$1: authenticated"
}

# not_authenticated HOST [KEY [CONTROLLERS-KEY]]
not_authenticated() {
    if connected_with "$@" 2>/tmp/error; then fail "$* has connected"; fi
    cat /tmp/error
    expect 'controllers that are left' "$(controllers)" ''
}

# new_secret KEY: the host authenticates itself again on every queue
new_secret() {
    dmesg -C
    secret "$1" >"/sys/class/nvme/$(controllers)/dhchap_secret"
    within 20 dmesg_says 're-authenticated\|qid 0: authenticated'
    dmesg | grep dhchap || true
}

new_controller_secret() {
    dmesg -C
    secret "$1" >"/sys/class/nvme/$(controllers)/dhchap_ctrl_secret"
    within 20 dmesg_says 're-authenticated\|qid 0: authenticated'
}

dmesg_says() {
    dmesg | grep -q "$1"
}

idle() {
    fresh
    connect
    namespace 1
}

# begin_two NSID: two hosts on one kernel, which without native multipath keeps their block devices
# apart.
begin_two() {
    fresh
    modprobe -r nvme-tcp nvme-fabrics nvme-core
    modprobe nvme-core multipath=N
    modprobe nvme-tcp
    a=11111111-2222-4333-8444-00000000000a b=11111111-2222-4333-8444-00000000000b
    local id
    for id in $a $b; do
        connect --hostnqn="nqn.2014-08.org.nvmexpress:uuid:$id" --hostid="$id"
    done
    both_there() { [ -b "$(device_of $a "$1")" ] && [ -b "$(device_of $b "$1")" ]; }
    within 10 both_there "$1"
    one=$(device_of $a "$1") two=$(device_of $b "$1")
}

end_two() {
    disconnect
    modprobe -r nvme-tcp nvme-fabrics nvme-core
    modprobe nvme-core multipath=Y
    modprobe nvme-tcp
}

reservations() {
    local a b one two
    begin_two 1
    nvme id-ns "$one" -o json | jq -e '.rescap == 254'
    nvme resv-register "$one" -n 1 --rrega=0 --nrkey=0xa
    nvme resv-register "$two" -n 1 --rrega=0 --nrkey=0xb
    nvme resv-acquire "$one" -n 1 --racqa=0 --rtype=1 --crkey=0xa
    nvme resv-report "$two" -n 1 --eds -o json | tee /tmp/report.json
    jq -e '.rtype == 1 and .regctl == 2' /tmp/report.json
    write_block "$one"
    if write_block "$two"; then fail "written by a host that may not"; fi
    dd if="$two" of=/dev/null bs=4k count=1 iflag=direct
    nvme resv-acquire "$two" -n 1 --racqa=1 --rtype=4 --crkey=0xb --prkey=0xa
    if write_block "$one"; then fail "written by a host that was preempted"; fi
    if dd if="$one" of=/dev/null bs=4k count=1 iflag=direct; then fail "read likewise"; fi
    nvme resv-notif-log "${one%n*}" -o json | tee /tmp/notice.json
    jq -e '.NSID == 1 and .rn_log_type == 1' /tmp/notice.json
    write_block "$two"
    nvme resv-register "$one" -n 1 --rrega=0 --nrkey=0xc
    write_block "$one"
    nvme resv-release "$one" -n 1 --rrela=1 --crkey=0xc
    nvme resv-report "$two" -n 1 --eds -o json | jq -e '.rtype == 0 and .regctl == 0'
    write_block "$one"
    write_block "$two"
    end_two
}

# The same by the kernel's calls for any block device, as blkpr and cluster managers make them.
block_reservations() {
    local a b one two
    begin_two 2
    pr() { python3 /share/pr.py "$@"; }
    pr "$one" register 0 0xa
    pr "$two" register 0 0xb
    pr "$one" reserve 0xa 0 1
    write_block "$one"
    if write_block "$two"; then fail "written by a host that may not"; fi
    if pr "$two" reserve 0xb 0 1; then fail "reserved twice"; fi
    pr "$one" release 0xa 0 1
    write_block "$two"
    pr "$one" reserve 0xa 0 4
    dd if="$two" of=/dev/null bs=4k count=1 iflag=direct status=none
    pr "$two" preempt 0xb 0xa 4
    if dd if="$one" of=/dev/null bs=4k count=1 iflag=direct; then fail "read after a preemption"; fi
    nvme resv-report "$two" -n 2 --eds -o json | jq -e '.rtype == 4 and .regctl == 1'
    pr "$two" clear 0xb
    nvme resv-report "$two" -n 2 --eds -o json | jq -e '.rtype == 0 and .regctl == 0'
    write_block "$one"
    end_two
}

# device_of HOSTID NSID: the block device of a namespace of the controller of this host
device_of() {
    local controller path
    for controller in $(controllers); do
        [ "$(cat "/sys/class/nvme/$controller/hostid")" = "$1" ] || continue
        for path in /sys/class/nvme/"$controller"/nvme*n*; do
            [ "$(cat "$path/nsid" 2>/dev/null)" = "$2" ] && echo "/dev/${path##*/}"
        done
    done
    return 0
}

write_block() {
    dd if=/dev/urandom of="$1" bs=4k count=1 oflag=direct status=none
}
