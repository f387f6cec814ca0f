//! A binary that was built without multicast DNS.

use crate::weft::{Folder, NQN, text, weft};

#[test]
fn multicast_dns_is_refused_with_what_to_do() {
    let folder = Folder::new("without-mdns");
    let config = format!(
        "mdns = true\n[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    );
    let config = folder.write("target.toml", config);
    let listen = ["target", "--listen", "tcp://127.0.0.1:0", "--memory", "1MiB", "--mdns"];
    for words in [&listen[..], &["target", "--config", text(&config)], &["discover", "--mdns"]] {
        let error = weft("epoll", words).fault();
        assert!(error.contains("--features mdns"), "{words:?}: {error}");
    }
}
