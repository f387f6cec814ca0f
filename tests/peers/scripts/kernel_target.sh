# The Linux kernel's target (nvmet) for weft's host: one function a step. Namespace 1 is 64 MiB of
# memory with blocks of 512 bytes, namespace 2 a file of 64 MiB with blocks of 4096. The driver
# runs `weft` outside and compares what it read and wrote with the data here.
. /share/lib.sh

NVMET=$CONFIGFS/nvmet

# serve [TRANSPORT ADDRESS]
serve() {
    local transport=${1:-tcp} address=${2:-0.0.0.0}
    modprobe "nvmet-$transport"
    modprobe null_blk nr_devices=0
    local disk=$CONFIGFS/nullb/nullb0
    mkdir "$disk"
    echo 64 >"$disk/size"
    echo 512 >"$disk/blocksize"
    echo 1 >"$disk/memory_backed"
    echo 1 >"$disk/discard"
    echo 1 >"$disk/power"
    truncate -s 64M /tmp/file
    local subsystem=$NVMET/subsystems/$NQN
    mkdir "$subsystem"
    echo 1 >"$subsystem/attr_allow_any_host"
    serve_namespace 1 /dev/nullb0
    serve_namespace 2 /tmp/file
    local port=$NVMET/ports/1
    mkdir "$port"
    echo "$transport" >"$port/addr_trtype"
    echo ipv4 >"$port/addr_adrfam"
    echo "$address" >"$port/addr_traddr"
    echo 4420 >"$port/addr_trsvcid"
    ln -s "$subsystem" "$port/subsystems/$NQN"
}

# serve_namespace NSID PATH
serve_namespace() {
    local namespace=$NVMET/subsystems/$NQN/namespaces/$1
    mkdir "$namespace"
    echo "$2" >"$namespace/device_path"
    echo 1 >"$namespace/enable"
}

# stop_port [PORT]: removes the port: controllers end.
stop_port() {
    rm "$NVMET/ports/${1:-1}/subsystems/$NQN"
}

# start_port [PORT]
start_port() {
    ln -s "$NVMET/subsystems/$NQN" "$NVMET/ports/${1:-1}/subsystems/$NQN"
}

# Another port, which the driver has forwarded as well.
second_port() {
    local port=$NVMET/ports/2
    mkdir "$port"
    echo tcp >"$port/addr_trtype"
    echo ipv4 >"$port/addr_adrfam"
    echo 0.0.0.0 >"$port/addr_traddr"
    echo 4421 >"$port/addr_trsvcid"
    start_port 2
}

no_second_port() {
    stop_port 2
    rmdir "$NVMET/ports/2"
}

# refer PORT OTHER: a port lists only itself and what it refers to
refer() {
    local referral=$NVMET/ports/$1/referrals/$2
    mkdir "$referral"
    echo tcp >"$referral/addr_trtype"
    echo ipv4 >"$referral/addr_adrfam"
    echo 127.0.0.1 >"$referral/addr_traddr"
    echo $((4419 + $2)) >"$referral/addr_trsvcid"
    echo 1 >"$referral/enable"
}

# Each of two ports goes and comes back while weft, here, writes and verifies. It was told of the first.
ports_by_referral() {
    local at="nvme-tcp://127.0.0.1:4420/$NQN?nsid=1" load status=0 port
    ip link set lo up
    second_port
    refer 1 2
    refer 2 1
    expect paths "$($WEFT list "$at" --discovery -o json | jq '.Devices[0].Paths | length')" 2
    $WEFT bench "$at" --discovery --rw randwrite --verify crc32c --bs 4k --iodepth 16 --size 16m \
        --runtime 100000 --time_based --quiet --reconnect-delay 1 </dev/null >/tmp/load.log 2>&1 &
    load=$!
    sleep 3
    for port in 1 2; do
        stop_port $port
        sleep 2
        grows
        start_port $port
        sleep 3
        grows
    done
    kill -INT $load
    wait $load || status=$?
    cat /tmp/load.log
    # It was interrupted, after it had read back what it had written.
    expect status $status 130
    rmdir "$NVMET"/ports/*/referrals/*
    no_second_port
}

# ana_state PORT STATE
ana_state() {
    echo "$2" >"$NVMET/ports/$1/ana_groups/1/ana_state"
}

# What was written to namespace 1 so far, in sectors.
written() {
    awk '{ print $7 }' /sys/block/nullb0/stat
}

# The load goes on.
grows() {
    local before
    before=$(written)
    more() { [ "$(written)" -gt $((before + 256)) ]; }
    within 20 more
}

# Only hosts of `list_host` may connect.
only_listed_hosts() {
    echo 0 >"$NVMET/subsystems/$NQN/attr_allow_any_host"
}

# list_host HOST HASH GROUP KEY [CONTROLLERS-KEY]
list_host() {
    local host=$NVMET/hosts/$1
    mkdir -p "$host"
    new_policy "$1" "$2" "$3"
    secret "$4" >"$host/dhchap_key"
    [ -z "${5:-}" ] || secret "$5" >"$host/dhchap_ctrl_key"
    ln -s "$host" "$NVMET/subsystems/$NQN/allowed_hosts/$1"
}

# new_policy HOST HASH GROUP: from its next exchange on
new_policy() {
    echo "hmac($2)" >"$NVMET/hosts/$1/dhchap_hash"
    echo "$3" >"$NVMET/hosts/$1/dhchap_dhgroup"
}

# new_key HOST KEY: from its next exchange on
new_key() {
    secret "$2" >"$NVMET/hosts/$1/dhchap_key"
}

# Any host may connect again.
every_host() {
    local host
    for host in "$NVMET/subsystems/$NQN/allowed_hosts/"*; do
        rm "$host"
        rmdir "$NVMET/hosts/${host##*/}"
    done
    echo 1 >"$NVMET/subsystems/$NQN/attr_allow_any_host"
}

# How many controllers this target has created so far.
created() {
    dmesg | grep -ciE 'creat(ing|ed) nvm controller' || true
}

backing() {
    case $1 in 1) echo /dev/nullb0 ;; 2) echo /tmp/file ;; esac
}

# sum NSID OFFSET LENGTH: the checksum of that range
sum() {
    sync
    dd if="$(backing "$1")" bs=512 skip=$(($2 / 512)) count=$(($3 / 512)) status=none | md5sum |
        cut -d' ' -f1
}

# put NSID: random bytes into the first 4 MiB, and a copy of them into the shared folder
put() {
    head -c 4M /dev/urandom >/share/put.bin
    dd if=/share/put.bin of="$(backing "$1")" bs=1M conv=notrunc,fsync status=none
}

# sum_of FILE of the shared folder
sum_of() {
    md5sum <"/share/$1" | cut -d' ' -f1
}

# flip NSID OFFSET: changes the byte at that offset
flip() {
    local byte
    sync
    byte=$(dd if="$(backing "$1")" bs=1 skip="$2" count=1 status=none | od -An -tu1)
    printf "\\x$(printf %x $((byte ^ 1)))" |
        dd of="$(backing "$1")" bs=1 seek="$2" conv=notrunc,fsync status=none
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
