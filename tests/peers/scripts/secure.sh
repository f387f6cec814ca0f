# TLS in the guest, for Linux' host and Linux' target: tlshd makes handshakes for the kernel, whose
# keyring .nvme has the keys.

HOST=nqn.2026-01.io.weft:secure

# The program that makes handshakes, and its library: those of the guest, or of tlshd.tar (README.md).
TLSHD=/usr/sbin/tlshd
GNUTLS=/usr/lib/x86_64-linux-gnu/libgnutls.so.30
if [ -e /share/tlshd.tar ]; then
    TLSHD=/tlshd/tlshd.real
    GNUTLS=/tlshd/libgnutls.so.30
fi

# Starts tlshd.
make_handshakes() {
    local loader=
    if [ -e /share/tlshd.tar ]; then
        tar -C / -xf /share/tlshd.tar
        # Named as the program is, so that it is found under that name.
        loader='/tlshd/tlshd --library-path /tlshd'
    fi
    modprobe tls
    modprobe nvme-keyring
    printf '%s\n' '[debug]' 'loglevel=1' 'tls=0' 'nl=0' '[authenticate]' 'keyrings=.nvme' >/etc/tlshd.conf
    # shellcheck disable=SC2086
    setsid $loader $TLSHD -c /etc/tlshd.conf -s </dev/null >/share/tlshd.log 2>&1 &
    within 10 pgrep -x tlshd
}

# insert IDENTITY FILE: a PSK in the shared folder becomes a key of the kernel
insert() {
    keyctl padd psk "$1" %:.nvme <"/share/$2" >/dev/null
}

# Takes all keys out of the kernel's keyring.
forget() {
    keyctl clear %:.nvme
}

# key NAME: what is in the file of this name
key() {
    cat "/share/$1"
}

# gnutls_has_sha384: whether it can have a PSK of another hash function than SHA-256
gnutls_has_sha384() {
    grep -q gnutls_psk_allocate_client_credentials2 $GNUTLS &&
        grep -q gnutls_psk_allocate_client_credentials2 $TLSHD && echo yes || echo no
}

# sockets: how many sockets of this kernel have TLS
sockets() {
    awk '/TlsCurrRxSw/ { print $2 }' /proc/net/tls_stat
}

# nvme_cli_makes HMAC: a key, in the kernel's keyring and in the shared folder
nvme_cli_makes() {
    nvme gen-tls-key --hmac="$1" --identity=1 --subsysnqn="$NQN" --hostnqn=$HOST --insert |
        grep -o 'NVMeTLSkey-1:.*:' >/share/theirs
}
