# nvme-stas and what it needs, from /share/stas.tar, with a system bus of its own.
. /share/lib.sh

# Starts stafd, which knows the discovery controller, and stacd, which asks stafd.
start() {
    fresh
    tar -C / -xf /share/stas.tar
    mkdir -p /run/dbus /run/stafd /run/stacd /var/cache/stafd /var/cache/stacd
    cat >/tmp/bus.conf <<EOF
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>
EOF
    cat >/etc/stas/stafd.conf <<EOF
[Global]
tron=true
[Service Discovery]
zeroconf=disabled
[Controllers]
controller=transport=tcp;traddr=$ADDRESS;trsvcid=$PORT
EOF
    printf '[Global]\ntron=true\n' >/etc/stas/stacd.conf
    printf '[Host]\nnqn=file:///etc/nvme/hostnqn\nid=file:///etc/nvme/hostid\n' >/etc/stas/sys.conf
    daemon bus dbus-daemon --nofork --config-file=/tmp/bus.conf
    within 10 test -S /run/dbus/system_bus_socket
    daemon stafd python3 -u /usr/sbin/stafd
    within 60 stafctl ls
    daemon stacd python3 -u /usr/sbin/stacd
}

# daemon NAME COMMAND...
daemon() {
    local name=$1
    shift
    setsid "$@" </dev/null >"/share/$name.log" 2>&1 &
    echo $! >"/tmp/$name.pid"
}

stop() {
    local name
    for name in stacd stafd bus; do
        kill "$(cat "/tmp/$name.pid")"
    done
    nvme disconnect-all
}

# live NQN: a controller of this subsystem is connected
live() {
    local path
    for path in /sys/class/nvme/nvme*; do
        [ "$(cat "$path/subsysnqn" 2>/dev/null)" = "$1" ] && [ "$(cat "$path/state")" = live ] && return 0
    done
    return 1
}

is_connected() {
    within 60 live "$1"
    stafctl ls
    stacctl ls
}
