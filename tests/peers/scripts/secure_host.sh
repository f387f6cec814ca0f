# The Linux kernel's host with TLS and with secure concatenation against weft's target.
. /share/kernel_host.sh
. /share/secure.sh

# as_host OPTIONS...: connects under the name of the tests' host, with an admin and two I/O queues
as_host() {
    connect --hostnqn=$HOST --hostid=11111111-2222-4333-8444-555555555555 --nr-io-queues=2 "$@"
}

# over_tls OPTIONS...
over_tls() {
    as_host "$@"
    encrypted
}

# Every queue of the controller has TLS, with a key that the kernel names.
encrypted() {
    within 30 has_tls_on 3
    tls_key
}

# has_tls_on SOCKETS
has_tls_on() {
    [ "$(sockets)" = "$1" ]
}

# tls_key: which key the controller uses
tls_key() {
    local key
    key=$(cat "/sys/class/nvme/$(controllers)/tls_key")
    [ -n "$key" ] || fail "the controller has no key of TLS"
    echo "$key"
}

# refused OPTIONS...
refused() {
    if as_host "$@" 2>/tmp/error; then fail "$* has connected"; fi
    cat /tmp/error
    expect 'controllers that are left' "$(controllers)" ''
}

# concatenated SECRET [CONTROLLER'S-SECRET]
concatenated() {
    over_tls --concat --dhchap-secret="$(key "$1")" ${2:+--dhchap-ctrl-secret="$(key "$2")"}
    # The key that the controller names is one that was made.
    keyctl rdescribe "0x$(tls_key)" | grep "NVMe1G0[12] $HOST $NQN " ||
        fail "the key is not a generated one"
}

# not_concatenated SECRET [CONTROLLER'S-SECRET]
not_concatenated() {
    refused --concat --dhchap-secret="$(key "$1")" ${2:+--dhchap-ctrl-secret="$(key "$2")"}
}

# Data gets through on both I/O queues.
works() {
    verified "$(namespace 1)" --name=small --bs=4k --size=256k --iodepth=8 --name=large --offset=1m \
        --bs=128k --size=1m --iodepth=4
}

reset_has_new_key() {
    local before controller
    before=$(tls_key)
    controller=$(controllers)
    nvme reset "/dev/$controller"
    within 30 is_live "$controller"
    encrypted
    [ "$(tls_key)" != "$before" ] || fail "the key is still $before"
}
