# The Debian package, installed in a root of its own that systemd runs in, as in a container: its
# unit serves a block device of this guest.
. /share/lib.sh

ROOT=/share/root
# A subsystem whose host has a key.
GUARDED=$NQN-guarded
HOST=nqn.2014-08.org.example:guarded

# inside COMMAND...: runs a command where the unit runs
inside() {
    nsenter -t "$(pgrep -o -x systemd)" --mount --pid --root --wd "$@"
}

# user: the number of the unit's user, which the package has made
user() {
    grep ^weft: $ROOT/etc/passwd | cut -d: -f3
}

# Starts systemd with nothing but the unit and what it needs.
start() {
    truncate -s 64M /run/disk
    losetup /dev/loop0 /run/disk
    # What a udev rule does where there is udev.
    chown "$(user)" /dev/loop0
    printf '%s\n' 'driver = "uring"' '[[port]]' 'listen = "tcp://127.0.0.1:4420"' '[[subsystem]]' \
        "nqn = \"$NQN\"" '[[subsystem.namespace]]' 'nsid = 1' 'device = "block:/dev/loop0"' \
        '[[subsystem]]' "nqn = \"$GUARDED\"" '[[subsystem.host]]' "nqn = \"$HOST\"" \
        'dhchap-key = "/run/credentials/weft.service/host"' \
        '[[subsystem.namespace]]' 'nsid = 1' 'memory = "1MiB"' >$ROOT/etc/weft/target.toml
    nvme gen-dhchap-key --hmac=1 --nqn="$HOST" >$ROOT/etc/weft/host
    chmod 600 $ROOT/etc/weft/host
    mkdir -p $ROOT/etc/systemd/system/weft.service.d
    printf '%s\n' '[Service]' 'LoadCredential=host:/etc/weft/host' \
        >$ROOT/etc/systemd/system/weft.service.d/host.conf
    # Services of a whole machine, which take minutes in an emulated one.
    local unit
    for unit in udevd udev-trigger journal-flush random-seed update-utmp tmpfiles-setup-dev \
        modules-load sysctl; do
        ln -sf /dev/null "$ROOT/etc/systemd/system/systemd-$unit.service"
    done
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
    unshare --mount --pid --fork --cgroup bash -c "
        mount --make-rprivate /
        mount --bind $ROOT $ROOT
        mount --rbind /dev $ROOT/dev
        mount --rbind /sys $ROOT/sys
        mount -t proc proc $ROOT/proc
        cd $ROOT
        pivot_root . mnt
        umount -l /mnt
        # As who starts containers does: what systemd mounts for a unit reaches that unit.
        mount --make-rshared /
        exec env container=weft /lib/systemd/systemd --unit=weft.service" >/run/systemd.log 2>&1 </dev/null &
    within 60 pgrep -x systemd
    # Why it does not start is known to its journal alone.
    (within 240 is_active) || { inside journalctl --no-pager --unit weft.service; return 1; }
}

is_active() {
    inside systemctl is-active weft.service
}

# uses_io_uring PROCESS
uses_io_uring() {
    [[ $(ls -l "/proc/$1/fd") == *io_uring* ]]
}

# The unit serves as its own user, over io_uring, with memory that it may lock.
serves() {
    local process
    process=$(pgrep -x weft)
    expect user "$(stat -c %u "/proc/$process")" "$(user)"
    # It is active only once it serves.
    uses_io_uring "$process" || fail "no io_uring"
    grep -q 'Max locked memory  *unlimited' "/proc/$process/limits" || fail "memory is limited"
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n "$NQN"
    verified "$(namespace 1)" --name=all --bs=4k --iodepth=8 --size=1M
    disconnect
}

# The key of a host is a credential: a file of root's that the unit's user cannot read. Only a host
# that has the key is served, and the key is seen neither in the unit's environment nor in its log.
credentials() {
    local process key
    process=$(pgrep -x weft)
    key=$(cat $ROOT/etc/weft/host)
    expect owner "$(stat -c %u:%a $ROOT/etc/weft/host)" 0:600
    expect user "$(stat -c %u "/proc/$process")" "$(user)"
    connect_guarded && fail "a host without a key is served"
    connect_guarded --dhchap-secret="$(nvme gen-dhchap-key --hmac=1 --nqn="$HOST")" &&
        fail "a host with another key is served"
    connect_guarded --dhchap-secret="$key"
    nvme disconnect -n "$GUARDED"
    key=${key#DHHC-1:01:}
    inside journalctl --no-pager >/tmp/journal
    inside systemctl show weft.service >>/tmp/journal
    tr '\0' '\n' <"/proc/$process/environ" >/tmp/environ
    grep -q '^CREDENTIALS_DIRECTORY=/run/credentials/weft.service$' /tmp/environ
    # Without these it would be in neither whatever happened.
    grep -q "was not authenticated" /tmp/journal || fail "the refusal is not logged"
    grep -qF "${key%:}" /tmp/journal /tmp/environ && fail "the key is seen"
    dmesg -C
}

connect_guarded() {
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n "$GUARDED" -q "$HOST" "$@"
}

# A changed file is applied by a reload; of a wrong one the reload fails, and the unit goes on.
reloads() {
    ! inside weft identify "nvme-tcp://127.0.0.1:4420/$NQN-added?nsid=2" || fail "it is there already"
    printf '%s\n' '[[subsystem]]' "nqn = \"$NQN-added\"" '[[subsystem.namespace]]' 'nsid = 2' \
        'memory = "1MiB"' >>$ROOT/etc/weft/target.toml
    inside systemctl reload weft.service
    inside weft identify "nvme-tcp://127.0.0.1:4420/$NQN-added?nsid=2"
    echo nonsense >>$ROOT/etc/weft/target.toml
    inside systemctl reload weft.service && fail "a wrong file was reloaded"
    is_active
}

stops() {
    inside systemctl stop weft.service
    expect state "$(inside systemctl show --property Result --value weft.service)" success
    pgrep -x weft && fail "it still runs"
    return 0
}

# A day that begins with nothing but the package: the steps of docs/operate.md, then the command
# that the last of them shows, until this host reads.
first_day() {
    local connect device
    inside systemctl disable --now weft.service
    rm $ROOT/etc/weft/target.toml $ROOT/etc/systemd/system/weft.service.d/host.conf
    inside systemctl daemon-reload
    inside journalctl --rotate --vacuum-time=1s
    # Whoever edits the file may leave it as it is: this host is the target's own machine.
    (echo 'set -eu; editor() { test -w "$1"; }' && cat /share/first_day) >$ROOT/root/first_day
    inside bash /root/first_day >/tmp/first_day || { cat /tmp/first_day; return 1; }
    grep 'namespace 1: file:/var/lib/weft/disk1.img' /tmp/first_day
    connect=$(grep -o 'nvme connect -t tcp .*' /tmp/first_day | tail -1)
    echo "$connect"
    NQN=${connect##* }
    $connect
    device=$(namespace 1)
    expect size "$(blockdev --getsize64 "$device")" $((1 << 30))
    all_zero "$device" 0 1
    verified "$device" --name=all --bs=4k --iodepth=8 --size=1M
    disconnect
    inside systemctl disable --now weft.service
}
