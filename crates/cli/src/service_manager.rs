//! The service manager that has started this process (systemd's `Type=notify`).

use sd_notify::NotifyState;

/// Tells it the state of this process, if it waits for that: what is started after the process
/// finds its ports open.
pub(crate) fn tell_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log::warn!("the service manager at NOTIFY_SOCKET cannot be told: {error}");
    }
}
