//! Memory shared by reactors, behind one lock, until the reactor's own shared region is there.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug)]
pub(crate) struct SharedRegion(Mutex<Vec<u8>>);

impl SharedRegion {
    pub(crate) fn new(bytes: u64, _block_bytes: u32) -> io::Result<Arc<Self>> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        Ok(Arc::new(Self(Mutex::new(vec![0; bytes]))))
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        self.with(offset, into.len(), |bytes| into.copy_from_slice(bytes));
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        self.with(offset, from.len(), |bytes| bytes.copy_from_slice(from));
    }

    pub(crate) fn zero(&self, offset: u64, length: u64) {
        self.with(offset, usize::try_from(length).unwrap_or(0), |bytes| bytes.fill(0));
    }

    pub(crate) fn discard(&self, offset: u64, length: u64) {
        self.zero(offset, length);
    }

    pub(crate) fn compare(&self, offset: u64, with: &[u8]) -> bool {
        let mut same = false;
        self.with(offset, with.len(), |bytes| same = bytes == with);
        same
    }

    pub(crate) fn compare_and_write(&self, offset: u64, compare: &[u8], write: &[u8]) -> bool {
        let mut same = false;
        self.with(offset, compare.len(), |bytes| {
            same = bytes == compare;
            if same {
                bytes.copy_from_slice(write);
            }
        });
        same
    }

    pub(crate) fn resize(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        self.lock().resize(bytes, 0);
        Ok(())
    }

    fn with(&self, offset: u64, length: usize, act: impl FnOnce(&mut [u8])) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut bytes = self.lock();
        if let Some(part) = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..length)) {
            act(part);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
