//! Ctrl-C and its relatives.

use std::{
    io,
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
};

/// The exit code of a program that a signal ended early, as shells count it.
pub(crate) const INTERRUPTED: u8 = 130;

/// What somebody wants of a program that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Stop in good order.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// Wishes as they come. Whoever wishes to stop a second time does not want to wait: the program
/// ends at once. The sender is for other ways to wish.
pub(crate) fn wishes() -> io::Result<(Sender<Wish>, Receiver<Wish>)> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (other, wishes) = channel();
    let wish = other.clone();
    thread::Builder::new().name("weft-signals".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let wanted = if signal == SIGHUP { Wish::Reload } else { Wish::Stop };
            if wanted == Wish::Stop && std::mem::replace(&mut stopping, true) {
                std::process::exit(INTERRUPTED.into());
            }
            if wish.send(wanted).is_err() {
                return;
            }
        }
    })?;
    Ok((other, wishes))
}

/// Wishes to stop when standard input ends: when whoever started this program is gone.
pub(crate) fn stop_with_stdin(wish: Sender<Wish>) -> io::Result<()> {
    thread::Builder::new().name("weft-stdin".to_owned()).spawn(move || {
        let mut stdin = io::stdin().lock();
        // What is written there is nobody's business; only the end matters.
        let _ = io::copy(&mut stdin, &mut io::sink());
        let _ = wish.send(Wish::Stop);
    })?;
    Ok(())
}

/// A flag that Ctrl-C raises; the second one ends the program at once.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the first signal must not find the flag raised by itself.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
