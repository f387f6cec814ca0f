# The Linux kernel's target (nvmet) with TLS and with secure concatenation for weft's host.
. /share/kernel_target.sh
. /share/secure.sh

# wants_tls required|'not required': of the port, which has TLS 1.3 either way
wants_tls() {
    stop_port
    echo tls1.3 >"$NVMET/ports/1/addr_tsas"
    echo "$1" >"$NVMET/ports/1/addr_treq"
    start_port
}

# list_secret_host HOST HASH GROUP SECRET [CONTROLLER'S-SECRET], with the names of files
list_secret_host() {
    secret() {
        key "$1"
    }
    list_host "$@"
}

# has_made_keys HOST: the keyring has generated keys
has_made_keys() {
    keyctl show %:.nvme
    keyctl show %:.nvme | grep -q "NVMe1G0[12] $1 $NQN "
}

# made_keys HOST: the identities of generated keys in the keyring
made_keys() {
    keyctl show %:.nvme | grep -o "NVMe1G0[12] $1 $NQN .*"
}
