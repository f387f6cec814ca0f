//! Devices that are to have another size.

use std::sync::Arc;

use weft_backend::{DeviceFactory, DeviceSpec};

use crate::shared::error::TargetError;

/// A device that stays and is to have another size.
#[derive(Debug)]
pub(super) struct Resize {
    factory: Arc<dyn DeviceFactory>,
    before: u64,
    bytes: u64,
}

impl Resize {
    /// Whether a device is configured to have another size; otherwise it reads its size. A file or
    /// image grows but is never cut: a typing error would lose data.
    pub(super) fn wanted(
        factory: &Arc<dyn DeviceFactory>,
        old: &DeviceSpec,
        new: &DeviceSpec,
        told: &dyn Fn(&dyn std::fmt::Display) -> TargetError,
    ) -> Result<Option<Self>, TargetError> {
        let found = factory.refresh().map_err(|error| told(&error))?;
        let configured =
            new.configured_bytes().filter(|_| new.configured_bytes() != old.configured_bytes());
        let Some(bytes) = configured else { return Ok(None) };
        if new.stored_name().is_some() && bytes < found.bytes() {
            log::warn!("{} is longer than its configured size: it is not cut", factory.identity());
            return Ok(None);
        }
        if bytes == 0 || !bytes.is_multiple_of(found.block_bytes.into()) {
            let (block_bytes, error) = (found.block_bytes, "not a whole number of blocks of");
            return Err(told(&format_args!("{bytes} bytes are {error} {block_bytes} bytes")));
        }
        Ok(Some(Self { factory: Arc::clone(factory), before: found.bytes(), bytes }))
    }

    fn grows(&self) -> bool {
        self.bytes > self.before
    }

    fn apply(&self, bytes: u64) -> Result<(), TargetError> {
        let resized = self.factory.resize(bytes);
        resized.map_err(|error| TargetError::new(format!("{}: {error}", self.factory.identity())))
    }
}

/// Resizes devices once nothing else can fail. Those that grow come first: they can be cut again
/// if another one fails, as no host has seen the new size. What was cut off is lost.
pub(super) fn resize(mut wanted: Vec<Resize>) -> Result<(), TargetError> {
    wanted.sort_by_key(|resize| !resize.grows());
    for (position, resize) in wanted.iter().enumerate() {
        let Err(error) = resize.apply(resize.bytes) else { continue };
        for done in wanted.iter().take(position).filter(|done| done.grows()) {
            if let Err(error) = done.apply(done.before) {
                log::warn!("{error}");
            }
        }
        return Err(error);
    }
    Ok(())
}
