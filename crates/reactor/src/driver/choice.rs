//! Which driver a reactor has.

use crate::driver::Driver;
use crate::driver::epoll::Epoll;
use crate::driver::kernel::Kernel;
use crate::driver::uring::Uring;
use crate::mailbox::Waker;
use crate::pool::Pool;
use crate::setup::{Config, DriverKind, SetupError, chosen_by_environment, hint};
use std::io;
use std::sync::Once;

/// The driver that `config` and the environment ask for.
pub(crate) fn kernel_driver(
    config: &Config,
    pool: &Pool,
    waker: &Waker,
) -> Result<Box<dyn Driver>, SetupError> {
    let kind = match config.driver {
        DriverKind::Auto => chosen_by_environment()?,
        kind => kind,
    };
    if kind != DriverKind::Epoll {
        match Uring::new(config, waker) {
            Ok(uring) => return Ok(Box::new(Kernel::new(uring, config, pool))),
            Err(error) if kind == DriverKind::Uring => return Err(SetupError::Uring(error)),
            Err(error) => log_once(&error),
        }
    }
    let epoll = Epoll::new(config, waker).map_err(SetupError::Epoll)?;
    Ok(Box::new(Kernel::new(epoll, config, pool)))
}

/// One line per process, not one per reactor.
fn log_once(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let hint = hint(error);
        log::warn!("io_uring is not available ({error}{hint}): using epoll, which is slower");
    });
}
