//! What a new operator tries on the first day, from what a command prints to the next command.

use std::process::{Command, Stdio};

use crate::weft::{Folder, NQN, Target, command, text, weft};

/// A target at a link-local address, in a network of its own, and a host that goes on with what the
/// target prints.
const LINK_LOCAL: &str = r#"
set -eu -o pipefail
ip link set lo up
ip -6 address add fe80::7/64 dev lo nodad
mkfifo stop
weft target --stop-with-stdin --memory 1MiB --nqn "$NQN" --listen 'tcp://[fe80::7%lo]:4420' \
    --discovery 'tcp://[fe80::7%1]:8009' <stop >said 2>log &
exec 3>stop
until grep -q 'nvme connect' said; do kill -0 $!; sleep 0.05; done
printed=$(sed -n 's/^listening on \([^ ]*\).*/\1/p' said | head -1)
test "$printed" = 'tcp://[fe80::7%lo]:4420'
grep -q 'nvme connect -t tcp -a fe80::7%lo -s 4420 ' said
weft discover "$printed" | grep -q "subnqn:  $NQN"
weft discover 'tcp://[fe80::7%lo]:8009' | grep -q "subnqn:  $NQN"
# What a log of such a controller lists is at the same interface.
address=$(weft list "nvme-$printed" -o json | sed -n 's/.*"\(nvme-tcp:[^"]*\)".*/\1/p' | head -1)
test -n "$address"
weft read "$address" --block-count 1 | wc -c
exec 3>&-
wait $!
"#;

#[test]
fn a_target_at_a_link_local_address_is_reached_by_what_it_prints() {
    let folder = Folder::new("link-local");
    let binary = command("epoll").get_program().to_owned();
    std::os::unix::fs::symlink(binary, folder.path("weft")).expect("a link");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "bash", "-c", LINK_LOCAL]);
    let path = std::env::var("PATH").unwrap_or_default();
    unshare.env("PATH", format!("{}:/usr/sbin:/sbin:{path}", text(&folder.path("."))));
    unshare.env("NQN", NQN).env("WEFT_DRIVER", "epoll").current_dir(folder.path("."));
    let ran = unshare.stdin(Stdio::null()).output().expect("unshare");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(said.trim(), "4096", "{said}");
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_told_at_the_start() {
    let mut shell = Command::new("bash");
    let serve = "ulimit -n 64; exec \"$0\" target -o json --stop-with-stdin \"$@\"";
    shell.args(["-c", serve]).arg(command("epoll").get_program());
    shell.args(["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"]);
    let target = Target::spawn("epoll", shell);
    let told = target.wait_for_log("the limit of 64 open files leaves room for");
    assert!(told.contains("ulimit -n") && told.contains("LimitNOFILE="), "{told}");
    target.stop();
}

/// An empty target is given all that it serves, and a host reads.
#[test]
fn a_target_that_has_nothing_yet_waits_at_any_control_address() {
    let folder = Folder::new("waits-anywhere");
    let socket = format!("unix:{}", text(&folder.path("control")));
    for control in ["tcp:127.0.0.1:0", &socket] {
        let mut empty = command("epoll");
        empty.args(["target", "--stop-with-stdin", "-o", "json", "--control", control]);
        empty.args(["--discovery", "tcp://127.0.0.1:0"]);
        let target = Target::spawn("epoll", empty);
        let control = target.said["control"].as_str().expect("said");
        let ctl = |words: &str| {
            let words = words.split(' ');
            weft("epoll", ["ctl", "--control", control].into_iter().chain(words)).text()
        };
        ctl(&format!("subsystem create {NQN} --allow-any-host"));
        ctl(&format!("namespace add {NQN} --memory 1MiB"));
        ctl(&format!("listener add {NQN} tcp://127.0.0.1:0"));
        let discovery = format!("nvme-tcp://127.0.0.1:{}", target.port(0));
        let found = weft("epoll", ["list", &discovery, "-o", "json"]).text();
        let address = found.split('"').find(|one| one.starts_with("nvme-tcp:")).expect("one");
        assert_eq!(weft("epoll", ["read", address, "--block-count", "1"]).stdout.len(), 4096);
        target.stop();
    }
}
