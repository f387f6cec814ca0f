# The Debian package, installed in a root of its own that systemd runs in, as in a container: its
# unit serves a block device of this guest.
. /share/lib.sh

ROOT=/share/root

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
        >$ROOT/etc/weft/target.toml
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
        exec env container=weft /lib/systemd/systemd --unit=weft.service" >/run/systemd.log 2>&1 </dev/null &
    within 60 pgrep -x systemd
    within 120 is_active
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

# A changed file is applied by a reload; of a wrong one the reload fails, and the unit goes on.
reloads() {
    printf '%s\n' '[[subsystem.namespace]]' 'nsid = 2' 'memory = "1MiB"' >>$ROOT/etc/weft/target.toml
    inside systemctl reload weft.service
    inside weft identify "nvme-tcp://127.0.0.1:4420/$NQN?nsid=2"
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
