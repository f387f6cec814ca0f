//! A binary that was built without TLS.

use crate::weft::{Folder, NQN, text, weft};

#[test]
fn tls_is_refused_with_what_to_do() {
    let folder = Folder::new("without-tls");
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"required\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    );
    let config = folder.write("target.toml", config);
    let error = weft("epoll", ["target", "--config", text(&config)]).fault();
    assert!(error.contains("built without TLS") && error.contains("port 1"), "{error}");
    let pair = "[pair]\nmember = 1\netcd = [\"https://127.0.0.1:1\"]\netcd-cacert = \"/ca\"\n";
    let rest = "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"nqn.a\"\n";
    let config = folder.write("pair.toml", format!("{pair}{rest}"));
    let error = weft("epoll", ["target", "--config", text(&config)]).fault();
    assert!(error.contains("built without TLS"), "{error}");
    let key = folder.path("key");
    weft("epoll", ["key", "generate", "tls", text(&key)]).text();
    let url = format!("nvme-tcp://127.0.0.1:1/{NQN}");
    let error = weft("epoll", ["list", "--tls", "--tls-key-file", text(&key), &url]).fault();
    assert!(error.contains("built without TLS"), "{error}");
}
