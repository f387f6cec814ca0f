//! The configuration of a reactor, and the errors of making one.

use std::{fmt, io};

/// The environment variable that names the driver where [`DriverKind::Auto`] leaves the choice.
pub const DRIVER_VARIABLE: &str = "WEFT_DRIVER";

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring where kernel and container allow it, epoll otherwise. The environment
    /// variable `WEFT_DRIVER` (`uring`, `epoll`) decides if it is set.
    #[default]
    Auto,
    /// io_uring; an error where it is not available.
    Uring,
    /// epoll, with threads for files.
    Epoll,
}

impl DriverKind {
    /// All, with their names.
    pub const NAMES: [(&str, Self); 3] =
        [("auto", Self::Auto), ("uring", Self::Uring), ("epoll", Self::Epoll)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, kind)| *kind == self).map_or("auto", |(name, _)| name)
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }
}

/// When io_uring does the completing half of its work; each mode where the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingMode {
    /// When the reactor asks for completions (DEFER_TASKRUN, Linux 6.1), otherwise the next.
    #[default]
    Deferred,
    /// When the reactor enters the kernel anyway (COOP_TASKRUN, Linux 5.19), otherwise the next.
    Cooperative,
    /// At once, by an interrupt of whatever the thread is doing.
    Plain,
}

/// The configuration of a reactor.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which driver.
    pub driver: DriverKind,
    /// Bytes of the buffer pool. Memory is taken as buffers are first used.
    pub pool_bytes: usize,
    /// Bytes received at once. A buffer of this size is held only while its bytes are processed.
    pub receive_bytes: usize,
    /// Most threads for operations that the driver cannot do itself; started when first needed.
    pub io_threads: usize,
    /// How io_uring works, where it does.
    pub ring: RingMode,
    /// The CPU to pin the calling thread to.
    pub cpu: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            driver: DriverKind::Auto,
            pool_bytes: 64 << 20,
            receive_bytes: 256 << 10,
            io_threads: 4,
            ring: RingMode::default(),
            cpu: None,
        }
    }
}

/// Why a reactor could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// The buffer pool could not be reserved.
    Pool(io::Error),
    /// No descriptor for wake-ups.
    Waker(io::Error),
    /// io_uring was selected by name and is not available.
    Uring(io::Error),
    /// No descriptor or memory for epoll.
    Epoll(io::Error),
    /// The thread could not be pinned.
    Pin {
        /// To this CPU.
        cpu: usize,
        /// Because of this.
        error: io::Error,
    },
    /// The environment variable `WEFT_DRIVER` holds something else than a driver.
    UnknownDriver(String),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => write!(f, "cannot reserve the buffer pool: {error}"),
            Self::Waker(error) => write!(f, "cannot make an eventfd: {error}"),
            Self::Uring(error) => write!(f, "cannot set up io_uring: {error}{}", hint(error)),
            Self::Epoll(error) => write!(f, "cannot set up epoll: {error}"),
            Self::Pin { cpu, error } => write!(f, "cannot pin the thread to CPU {cpu}: {error}"),
            Self::UnknownDriver(name) => {
                write!(f, "{DRIVER_VARIABLE} is {name:?}; it can be auto, uring or epoll")
            }
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pool(error)
            | Self::Waker(error)
            | Self::Uring(error)
            | Self::Epoll(error)
            | Self::Pin { error, .. } => Some(error),
            Self::UnknownDriver(_) => None,
        }
    }
}

/// What to do about it, where the error does not say. Some kernels (6.18 is one) count a ring as
/// locked memory of its user unless that user has CAP_IPC_LOCK.
pub(crate) fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::OutOfMemory => "; the limit of locked memory, ulimit -l, may be too low",
        _ => "",
    }
}

/// The driver that the environment names.
pub(crate) fn chosen_by_environment() -> Result<DriverKind, SetupError> {
    let name = std::env::var_os(DRIVER_VARIABLE).unwrap_or_default();
    driver_by_name(&name.to_string_lossy())
}

fn driver_by_name(name: &str) -> Result<DriverKind, SetupError> {
    match name {
        "" => Ok(DriverKind::Auto),
        name => DriverKind::named(name).ok_or_else(|| SetupError::UnknownDriver(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_have_names() {
        assert_eq!(driver_by_name("").unwrap(), DriverKind::Auto);
        for kind in [DriverKind::Auto, DriverKind::Uring, DriverKind::Epoll] {
            assert_eq!(driver_by_name(kind.name()).unwrap(), kind);
        }
        assert_eq!(DriverKind::Uring.name(), "uring");
        let error = driver_by_name("Epoll").unwrap_err().to_string();
        assert!(error.contains("WEFT_DRIVER") && error.contains("\"Epoll\""), "{error}");
    }

    #[test]
    fn too_little_locked_memory_is_told_as_that() {
        let error = |errno| SetupError::Uring(io::Error::from_raw_os_error(errno)).to_string();
        assert!(error(12).contains("ulimit -l"), "{}", error(12));
        assert!(!error(1).contains("ulimit"), "{}", error(1));
    }

    #[test]
    fn a_pool_larger_than_the_address_space_is_an_error() {
        let config = Config { pool_bytes: usize::MAX, ..Config::default() };
        let error = crate::Reactor::new(config).unwrap_err();
        assert!(matches!(error, SetupError::Pool(_)));
        assert!(std::error::Error::source(&error).is_some());
    }
}
