//! Signals.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The exit code after a signal, as shells define it.
pub(crate) const INTERRUPTED: u8 = 130;

/// A request to a running server, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerRequest {
    /// Shut down cleanly.
    Stop(String),
    /// Reload the configuration.
    Reload(String),
    /// Tell hosts of devices that have changed their size by themselves, and of files that are
    /// gone.
    Rescan,
}

/// Requests from signals, and a sender for requests from elsewhere. A second request to stop ends
/// the program at once.
pub(crate) fn wishes() -> io::Result<(Sender<ServerRequest>, Receiver<ServerRequest>)> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (other, wishes) = channel();
    let wish = other.clone();
    thread::Builder::new().name("weft-signals".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let wanted = match signal {
                SIGHUP => ServerRequest::Reload("SIGHUP".to_owned()),
                _ if std::mem::replace(&mut stopping, true) => {
                    std::process::exit(INTERRUPTED.into())
                }
                SIGINT => ServerRequest::Stop("SIGINT".to_owned()),
                _ => ServerRequest::Stop("SIGTERM".to_owned()),
            };
            if wish.send(wanted).is_err() {
                return;
            }
        }
    })?;
    Ok((other, wishes))
}

/// Requests a stop at the end of standard input, that is, when the parent process has ended.
pub(crate) fn stop_with_stdin(wish: Sender<ServerRequest>) -> io::Result<()> {
    thread::Builder::new().name("weft-stdin".to_owned()).spawn(move || {
        let mut stdin = io::stdin().lock();
        // The data is ignored; only its end matters.
        let _ = io::copy(&mut stdin, &mut io::sink());
        let _ = wish.send(ServerRequest::Stop("the end of standard input".to_owned()));
    })?;
    Ok(())
}

/// A flag that Ctrl-C sets; a second Ctrl-C ends the program at once.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal must not see the flag that it sets itself.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
