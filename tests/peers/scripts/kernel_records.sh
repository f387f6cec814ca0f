# TLS of which the kernel makes the records: weft's host and weft's target, both in the guest, with
# each other and with Linux' host and target.
. /share/secure_target.sh

ADDRESS=127.0.0.1
PORT=4421
HERE="nvme-tcp://127.0.0.1:4421/$NQN?nsid=1"

prepare() {
    modprobe tls
    ip link set lo up
}

# make_key HASH: key and its copies, which only root may read
make_key() {
    rm -f /tmp/key /tmp/secret
    $WEFT key generate tls --hmac "$1" /tmp/key >/dev/null
    $WEFT key generate dhchap --hmac "$1" /tmp/secret >/dev/null
}

# configure RECORDS: weft's target
configure() {
    local tls=required keys='psk = ["/tmp/key"]'
    if [ "${CONCAT:-}" ]; then
        tls=allowed keys='dhchap-key = "/tmp/secret"
dhchap-concat = true'
    fi
    cat >/tmp/target.toml <<EOF
[[port]]
listen = "tcp://127.0.0.1:4421"
tls = "$tls"
tls-records = "$1"
[[subsystem]]
nqn = "$NQN"
[[subsystem.host]]
nqn = "$HOST"
$keys
[[subsystem.namespace]]
nsid = 1
memory = "64MiB"
uuid = "77656674-0000-4000-8000-00000000beef"
EOF
}

# target RECORDS: weft's target in the guest; it replaces an earlier one
target() {
    end_target
    configure "$1"
    WEFT_LOG=debug serve_inside --config /tmp/target.toml --control unix:/tmp/control
}

# as_weft WORD...: weft's host with the key of the tests
as_weft() {
    local keys=(--tls --tls-key-file /tmp/key)
    [ "${CONCAT:-}" ] && keys=(--concat --dhchap-secret-file /tmp/secret)
    $WEFT "$@" --hostnqn $HOST "${keys[@]}"
}

# count NAME: what the kernel has counted of its TLS
count() {
    awk -v name="$1" '$1 == name { print $2; found = 1 } END { if (!found) print 0 }' /proc/net/tls_stat
}

# moved RECORDS [ADDRESS]: data is written with a check sum in each block and read back, by a host
# with these records
moved() {
    local url=${2:-$HERE} bs
    expect records "$(as_weft list "$url" --tls-records "$1" -o json | jq -r '.Devices[0].TLSRecords')" "$1"
    for bs in 4k 128k; do
        as_weft bench "$url" --tls-records "$1" --rw randwrite --verify crc32c --quiet --size 1m \
            --io-size 1m --bs $bs --iodepth 8 --reconnect-delay 1 --output-format json >/tmp/moved.json
        expect error "$(jq '.jobs[0].error' /tmp/moved.json)" 0
        [ "$(jq '.jobs[0].write.io_bytes' /tmp/moved.json)" -ge $((1 << 20)) ] || fail "too little"
    done
}

# each_way HASH: each end with the records of either
each_way() {
    local at_target at_host before
    make_key "$1"
    for at_target in user kernel; do
        target $at_target
        for at_host in user kernel; do
            before=$(count TlsTxSw)
            moved $at_host
            case "$at_target $at_host" in
            'user user') expect "uses of the kernel's TLS" "$(count TlsTxSw)" "$before" ;;
            *) [ "$(count TlsTxSw)" -gt "$before" ] || fail "the kernel has no record of $at_target $at_host" ;;
            esac
        done
        grep -q "records of $([ $at_target = user ] && echo 'user space' || echo 'the kernel')" $LOG ||
            fail "the target does not say whose records"
    done
    expect 'errors of records' "$(count TlsDecryptError)" 0
}

# shown: what the target tells of a connection while it lasts
shown() {
    make_key sha256
    target kernel
    as_weft bench "$HERE" --tls-records kernel --rw randread --runtime 20 --time-based --bs 4k \
        --quiet --output-format json >/dev/null &
    local load=$!
    within 20 shows_kernel
    kill -TERM $load
    wait $load || true
}

shows_kernel() {
    $WEFT top --control unix:/tmp/control --once --queues -o json --interval 200ms |
        jq -e '[.queues[] | select(.tls_records == "kernel")] | length >= 2'
}

# renewed: both ends renew their keys after each MiB
renewed() {
    local at_target at_host
    make_key "$1"
    export WEFT_TLS_KEY_BYTES=$((1 << 20))
    for at_target in user kernel; do
        target $at_target
        for at_host in user kernel; do
            [ "$at_target $at_host" = 'user user' ] || moved $at_host
        done
    done
    echo "renewed: $(count TlsTxRekeyOk) sent, $(count TlsRxRekeyOk) received"
    [ "$(count TlsTxRekeyOk)" -ge 4 ] && [ "$(count TlsRxRekeyOk)" -ge 4 ] || fail "too few renewals"
    expect 'errors of renewals' "$(count TlsTxRekeyError) $(count TlsRxRekeyError)" '0 0'
    expect 'errors of records' "$(count TlsDecryptError)" 0
    ! grep 'TLS of the kernel' $LOG || fail "a connection has ended"
}

# not_renewed: a kernel that cannot replace keys ends connections in time, and the host comes back
not_renewed() {
    make_key sha256
    export WEFT_TLS_KEY_BYTES=$((1 << 20))
    target user
    as_weft bench "$HERE" --tls-records kernel --rw randread --size 8m --io-size 3m --bs 128k --quiet \
        --reconnect-delay 1 --output-format json >/tmp/moved.json 2>/tmp/said
    cat /tmp/said
    grep -q 'the peer has renewed its key, and this kernel cannot replace it' /tmp/said || fail "no reason"
    expect error "$(jq '.jobs[0].error' /tmp/moved.json)" 0
    target kernel
    as_weft bench "$HERE" --tls-records kernel --rw randwrite --verify crc32c --size 12m --io-size 12m \
        --bs 128k --quiet --reconnect-delay 1 --output-format json >/tmp/moved.json 2>/tmp/said
    cat /tmp/said
    grep -q 'the sending key is used up, and this kernel cannot replace it' /tmp/said $LOG || fail "no reason"
    expect error "$(jq '.jobs[0].error' /tmp/moved.json)" 0
}

concatenated_both() {
    make_key sha256
    CONCAT=yes target kernel
    CONCAT=yes moved kernel
    CONCAT=yes moved user
}

# killed: the target is killed under load, and comes back
killed() {
    make_key sha256
    target kernel
    as_weft bench "$HERE" --tls-records kernel --rw randread --runtime 6 --time-based --bs 4k \
        --iodepth 8 --quiet --reconnect-delay 1 --output-format json >/tmp/moved.json &
    local load=$!
    sleep 2
    kill_target
    target kernel
    wait $load
    expect error "$(jq '.jobs[0].error' /tmp/moved.json)" 0
    [ "$(grep -c 'records of the kernel' $LOG)" -gt 0 ] || fail "the host has not come back"
}

# into_keyring HASH VERSION: the key of the tests for Linux' own NVMe
into_keyring() {
    rm -f /share/psk
    forget
    insert "$($WEFT key show-identity /tmp/key --hostnqn $HOST --subsysnqn "$NQN" --identity "$1" \
        --psk-file /share/psk)" psk
}

# linux_host: Linux' host at weft's target
linux_host() {
    make_key sha256
    into_keyring 1
    target kernel
    connect --hostnqn=$HOST --hostid=11111111-2222-4333-8444-555555555555 --nr-io-queues=2 --tls
    within 30 test -b "$(namespace 1)"
    verified "$(namespace 1)" --name=small --bs=4k --size=256k --iodepth=8 --name=large --offset=1m \
        --bs=128k --size=1m --iodepth=4
    grep -q 'records of the kernel' $LOG || fail "the target has the records"
    disconnect
    end_target
}

# linux_target: weft's host at Linux' target
linux_target() {
    end_target
    make_key sha256
    into_keyring 1
    moved kernel "nvme-tcp://127.0.0.1:4420/$NQN?nsid=1"
}

# missing: without the kernel's module one sentence says so
missing() {
    end_target
    make_key sha256
    local said
    rmmod tls
    # Root has the kernel load it.
    mv "$(modinfo -n tls)" /tmp/
    if as_weft list "$HERE" --tls-records kernel >/tmp/said 2>&1; then fail "it has connected"; fi
    cat /tmp/said
    grep -q 'this kernel has no TLS (load its module: modprobe tls)' /tmp/said || fail "no sentence"
    expect lines "$(wc -l </tmp/said)" 1
    said=$(target_says)
    echo "$said"
    echo "$said" | grep -q 'tls-records): this kernel has no TLS' || fail "no sentence of the target"
    mv /tmp/tls.ko* "$(dirname "$(modinfo -n nvme-tcp)")/../../../net/tls/"
    modprobe tls
}

target_says() {
    configure kernel
    ! $WEFT target --config /tmp/target.toml 2>&1
}

# request: ICReq
request() {
    printf '\0\0\200\0\200\0\0\0'
    head -c 120 /dev/zero
}

# asked: OpenSSL's client renews its key and asks for another one of the target
asked() {
    make_key sha256
    rm -f /tmp/psk /tmp/answer
    local identity secret
    identity=$($WEFT key show-identity /tmp/key --hostnqn $HOST --subsysnqn "$NQN" --identity 1 --psk-file /tmp/psk)
    secret=$(od -An -v -tx1 /tmp/psk | tr -d ' \n')
    target kernel
    # What comes at once would be taken for a part of the command. The last is no PDU of a host: the
    # target ends the connection, and says so with its new key.
    {
        sleep 2
        request
        sleep 2
        printf 'K\n'
        sleep 2
        printf '\377\377\377\377\377\377\377\377'
        sleep 2
    } | openssl s_client -connect 127.0.0.1:4421 -tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256 \
        -psk_identity "$identity" -psk "$secret" >/tmp/answer 2>&1 || true
    grep -a 'TLS:' $LOG
    grep -q 'another receiving key' $LOG && grep -q 'another sending key' $LOG || fail "keys are the old ones"
    # C2HTermReq: its type, and the length of its header.
    grep -qaP '\x03\x00\x18\x00' /tmp/answer || { od -c /tmp/answer | tail; fail "no answer with the new key"; }
}
